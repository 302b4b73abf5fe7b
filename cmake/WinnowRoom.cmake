# Flags that every target of the project shares.
add_library(winnow_flags INTERFACE)
target_include_directories(winnow_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(winnow_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
target_link_libraries(winnow_flags INTERFACE Threads::Threads)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3 g++ 12 sees overlapping copies in every `"text" + std::string` (GCC bug 105651) and strings without a value
  # in aggregates with designated initializers.
  target_compile_options(winnow_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
  if(WINNOW_PRECOMPILE)  # the same bug: precompiled standard headers no longer pass for system headers, whose warnings are off
    target_compile_options(winnow_flags INTERFACE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  endif()
endif()
if(WINNOW_WERROR)
  target_compile_options(winnow_flags INTERFACE -Werror)
endif()
if(WINNOW_SANITIZE)
  target_compile_options(winnow_flags INTERFACE -fsanitize=${WINNOW_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(winnow_flags INTERFACE -fsanitize=${WINNOW_SANITIZE})
endif()
if(WINNOW_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(WINNOW_LIBFUZZER ON)
  target_compile_options(winnow_flags INTERFACE -fsanitize=fuzzer-no-link)  # so that coverage sees the libraries
endif()

# What is tested is in the libraries, but half the time of building goes into tests. Linked last: later options win.
add_library(winnow_test_flags INTERFACE)
target_link_libraries(winnow_test_flags INTERFACE winnow_flags)
if(WINNOW_SANITIZE MATCHES "undefined")
  target_compile_options(winnow_test_flags INTERFACE -fno-sanitize=undefined)
elseif(NOT WINNOW_SANITIZE)
  target_compile_options(winnow_test_flags INTERFACE -O1)
endif()

# winnow_precompile(TARGET code|tests)
#
# Reading the standard headers again in every file takes half the time of a build, so they are precompiled: one set for code,
# one for tests. WINNOW_PRECOMPILE=OFF (presets dev and tidy) does without, so that a missing #include is found.
function(winnow_precompile target set)
  if(NOT WINNOW_PRECOMPILE)
    return()
  endif()
  set(shared winnow_headers_${set})
  if(NOT TARGET ${shared})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${shared}.cc CONTENT "// Compiled for its headers.\n")
    add_library(${shared} OBJECT ${CMAKE_BINARY_DIR}/${shared}.cc)
    target_link_libraries(${shared} PRIVATE winnow_flags)
    set(headers <algorithm> <array> <chrono> <cmath> <cstdint> <functional> <limits> <map> <memory> <numeric> <optional> <span>
                <sstream> <string> <string_view> <utility> <variant> <vector>)
    if(set STREQUAL "tests")
      target_link_libraries(${shared} PRIVATE GTest::gtest winnow_test_flags)
      list(APPEND headers <gtest/gtest.h>)
    endif()
    target_precompile_headers(${shared} PRIVATE ${headers})
  endif()
  target_compile_options(${target} PRIVATE -fPIC)  # as the headers, in programs too
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# winnow_unity(TARGET [APART folder/ ...])
#
# WINNOW_UNITY: files of a target are compiled eight at a time, for most of the work is what they all include. A build from
# scratch takes less time, one after a change more. Names in unnamed namespaces must then differ within eight files; those
# whose path begins with a word of APART (ALL: every file), as tests of one form that declare the same names, are
# compiled alone.
function(winnow_unity target)
  cmake_parse_arguments(UNITY "" "" "APART" ${ARGN})
  if(NOT WINNOW_UNITY OR UNITY_APART STREQUAL "ALL")
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # what an unnamed namespace of an included file holds, it takes for a header's
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(start IN LISTS UNITY_APART)
    set(apart ${sources})
    list(FILTER apart INCLUDE REGEX "^${start}")
    if(NOT apart)
      message(FATAL_ERROR "${target}: APART ${start}: no source begins so")
    endif()
    set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# winnow_room(NAME gguf SOURCES a.cc DEPENDS base [LIBRARIES x] [APART folder/] [TESTS a_test.cc] [TEST_LIBRARIES y] [TESTS_APART folder/|ALL])
#
# One library per folder of src/, and one test program for the *_test.cc beside its files. DEPENDS names rooms:
# what a room may include is what it declares here (tools/check_layers.py reads these lists).
function(winnow_room)
  cmake_parse_arguments(ROOM "" "NAME" "SOURCES;DEPENDS;LIBRARIES;APART;TESTS;TEST_LIBRARIES;TESTS_APART" ${ARGN})
  set(target winnow_${ROOM_NAME})
  list(TRANSFORM ROOM_DEPENDS PREPEND winnow_)
  if(ROOM_SOURCES)
    add_library(${target} STATIC ${ROOM_SOURCES})
    target_link_libraries(${target} PUBLIC winnow_flags ${ROOM_DEPENDS} PRIVATE ${ROOM_LIBRARIES})
    winnow_precompile(${target} code)
    winnow_unity(${target} APART ${ROOM_APART})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE winnow_flags ${ROOM_DEPENDS} ${ROOM_LIBRARIES})
  endif()
  if(WINNOW_TESTS AND ROOM_TESTS)
    add_executable(${target}_test ${ROOM_TESTS})
    target_link_libraries(${target}_test PRIVATE ${target} ${ROOM_TEST_LIBRARIES} GTest::gtest GTest::gtest_main
                                                  winnow_test_flags)
    winnow_precompile(${target}_test tests)
    winnow_unity(${target}_test APART ${ROOM_TESTS_APART})
    set_target_properties(${target}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    winnow_suites(${target}_test PREFIX "${ROOM_NAME}/" LABELS ${ROOM_NAME})
  endif()
endfunction()
