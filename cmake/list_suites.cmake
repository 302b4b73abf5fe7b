# cmake -DPROGRAM= -DEMULATOR= -DPREFIX= -DLABELS= -DTIMEOUT= -DEXCLUDE= -DFOLDER= -DOUT= -P list_suites.cmake: asks a gtest
# program for its suites and writes a ctest file with an entry for each (cmake/WinnowSuites.cmake).
set(MAX_TESTS 64)

execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests --gtest_filter=*-${EXCLUDE} WORKING_DIRECTORY ${FOLDER}
                OUTPUT_VARIABLE listed RESULT_VARIABLE result TIMEOUT 60)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${result}")
endif()

# A suite is a line that begins with its name and ends with a dot; its tests follow, indented. What is behind a # shows
# a parameter and may hold anything.
string(REPLACE "\\" "/" listed "${listed}")
string(REGEX REPLACE "[;]" "," listed "${listed}")
string(REGEX REPLACE "[][]" "_" listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(suites "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ].*)\\.( +#.*)?$")
    set(suite "${CMAKE_MATCH_1}")
    list(APPEND suites "${suite}")
    set(n_${suite} 0)
  elseif(line MATCHES "^  [^ ]")
    math(EXPR n_${suite} "${n_${suite}} + 1")
  endif()
endforeach()

set(text "")
function(entry name filter n environment)
  string(APPEND text "add_test([=[${name}]=] ${EMULATOR} [=[${PROGRAM}]=] [=[--gtest_filter=${filter}]=] --gtest_brief=1)\n"
                     "set_tests_properties([=[${name}]=] PROPERTIES WORKING_DIRECTORY [=[${FOLDER}]=] TIMEOUT ${TIMEOUT} LABELS "
                     "[=[${LABELS}]=] COST ${n} SKIP_REGULAR_EXPRESSION [=[PASSED  . 0 tests]=])\n")
  if(environment)
    string(APPEND text "set_tests_properties([=[${name}]=] PROPERTIES ENVIRONMENT [=[${environment}]=])\n")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

foreach(suite IN LISTS suites)
  set(n ${n_${suite}})
  set(filter "${suite}.*")
  if(EXCLUDE)
    string(APPEND filter "-${EXCLUDE}")
  endif()
  math(EXPR n_parts "(${n} + ${MAX_TESTS} - 1) / ${MAX_TESTS}")
  if(n_parts LESS 2)
    entry("${PREFIX}${suite}" "${filter}" ${n} "")
  else()
    math(EXPR last "${n_parts} - 1")
    foreach(part RANGE ${last})
      math(EXPR number "${part} + 1")
      entry("${PREFIX}${suite}/${number}of${n_parts}" "${filter}" ${MAX_TESTS}
            "GTEST_TOTAL_SHARDS=${n_parts};GTEST_SHARD_INDEX=${part}")
    endforeach()
  endif()
endforeach()
file(WRITE ${OUT} "${text}")
