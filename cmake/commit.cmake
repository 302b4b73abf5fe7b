# cmake -DSOURCE=... -DTEMPLATE=... -DOUT=... -P commit.cmake: the commit that is built, into a source file; nothing outside a
# checkout. Runs in every build, and touches the file only when it changes.
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${TEMPLATE} ${OUT} @ONLY)
