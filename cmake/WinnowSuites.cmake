# winnow_suites(TARGET PREFIX prefix/ LABELS label [TIMEOUT seconds])
#
# One ctest entry per gtest suite, found after the program is linked: a process per suite instead of one per test. A suite
# of more than 64 tests becomes several entries (gtest's shards), so that `ctest -j` has something to share out. Sanitizer
# builds leave out the tests that WINNOW_SANITIZE_EXCLUDE names: what they measure is time, or memory.
set(WINNOW_SANITIZE_EXCLUDE "*LinearTime*:*LinearithmicTime*:*FastSelectionAgrees*:*EveryMethodTogether.IsAlone*")

function(winnow_suites target)
  cmake_parse_arguments(SUITES "" "PREFIX;TIMEOUT;LABELS" "" ${ARGN})
  if(NOT SUITES_TIMEOUT)
    set(SUITES_TIMEOUT 900)
  endif()
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  set(exclude "")
  if(WINNOW_SANITIZE)
    set(exclude "${WINNOW_SANITIZE_EXCLUDE}")
  endif()
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${list} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D "PROGRAM=$<TARGET_FILE:${target}>" -D "EMULATOR=$<TARGET_PROPERTY:${target},CROSSCOMPILING_EMULATOR>"
            -D "PREFIX=${SUITES_PREFIX}" -D "LABELS=${SUITES_LABELS}" -D "TIMEOUT=${SUITES_TIMEOUT}" -D "EXCLUDE=${exclude}"
            -D "FOLDER=${CMAKE_SOURCE_DIR}" -D "OUT=${list}" -P ${CMAKE_SOURCE_DIR}/cmake/list_suites.cmake)
  # Until the program is built its entry says so and fails.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
