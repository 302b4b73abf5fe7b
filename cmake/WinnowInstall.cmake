# What others build against: one library with the objects of all rooms behind the public API, its headers, and two
# descriptions of it: a CMake package (find_package(winnow), target winnow::winnow) and winnow.pc.
# Static by default, as there is no promise of a stable ABI yet; -DBUILD_SHARED_LIBS=ON makes it shared.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(libwinnow)
foreach(room base gguf tokenizer jinja chat grammar kernels cache attention compression model runtime api)
  target_sources(libwinnow PRIVATE $<TARGET_OBJECTS:winnow_${room}>)
endforeach()
if(WINNOW_GRAMMAR)
  target_sources(libwinnow PRIVATE $<TARGET_OBJECTS:winnow_xgrammar>)
endif()
set_target_properties(libwinnow PROPERTIES OUTPUT_NAME winnow EXPORT_NAME winnow LINKER_LANGUAGE CXX
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(libwinnow INTERFACE cxx_std_20)
target_include_directories(libwinnow INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(libwinnow PRIVATE hwy::hwy PkgConfig::pcre2 Threads::Threads)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)
install(TARGETS libwinnow EXPORT winnow ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT winnow NAMESPACE winnow:: FILE winnowTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/winnowConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/winnowConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/winnowConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/winnowConfig.cmake ${CMAKE_BINARY_DIR}/winnowConfigVersion.cmake
        DESTINATION ${package_dir})

# Of a static library, everybody who links must know what it needs; of a shared one, only pkg-config --static.
set(requires Requires)
if(BUILD_SHARED_LIBS)
  set(requires Requires.private)
endif()
# The file finds its prefix from where it lies, so that an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." up_from_libdir "/${CMAKE_INSTALL_LIBDIR}")
configure_file(${CMAKE_SOURCE_DIR}/cmake/winnow.pc.in ${CMAKE_BINARY_DIR}/winnow.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/winnow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
