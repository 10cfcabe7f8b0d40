# What is installed, in two components, and the Debian packages that scripts/debian makes of them:
#   program     the program `outboard` with its compiler and manual         package outboard
#   client-dev  headers and archive of the C++ client library, for          package outboard-client-dev
#               find_package(Outboard) and pkg-config outboard-client
# `cmake --install build --component client-dev --prefix DIR` installs one of them below DIR.
# tests/packages tries both; docs/packages.md is the page for users.
set(library_folder lib/${CMAKE_LIBRARY_ARCHITECTURE})   # lib/x86_64-linux-gnu, where Debian's tools look
set(packaging ${PROJECT_SOURCE_DIR}/cmake/packages)
set(made ${PROJECT_BINARY_DIR}/packaging)
file(MAKE_DIRECTORY ${made})

# ---- client-dev

# The client's libraries as one archive, and the packages that a program which links it needs.
set(open ob_nn)
set(ours)
set(theirs)
while(open)
  list(POP_FRONT open library)
  string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
  if(library IN_LIST ours OR library IN_LIST theirs)
    continue()
  elseif(library MATCHES "^ob_")
    list(APPEND ours ${library})
    get_target_property(links ${library} LINK_LIBRARIES)
    if(links)  # one that needs nothing has none
      list(APPEND open ${links})
    endif()
  else()
    list(APPEND theirs ${library})
  endif()
endwhile()
list(SORT ours)
list(SORT theirs)
list(TRANSFORM ours REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(outboard_client STATIC ${objects})
set_target_properties(outboard_client PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME outboard-client EXPORT_NAME client)
target_link_libraries(outboard_client PUBLIC ${theirs})
target_compile_features(outboard_client PUBLIC cxx_std_20)
install(TARGETS outboard_client EXPORT OutboardTargets
  ARCHIVE DESTINATION ${library_folder} COMPONENT client-dev
  INCLUDES DESTINATION include/outboard)

# Headers keep their folders, so that a program includes "client/tensor/tensor.h" here as in a clone.
set(public_headers
  client/autograd/backward.h
  client/capture/jit.h
  client/capture/repeat.h
  client/nn/checkpoint.h
  client/nn/files.h
  client/nn/layers.h
  client/nn/optim.h
  client/nn/state.h
  client/session/current_session.h
  client/tensor/tensor.h
)
configure_file(${packaging}/InstallHeaders.cmake.in ${made}/InstallHeaders.cmake @ONLY)
install(SCRIPT ${made}/InstallHeaders.cmake COMPONENT client-dev)

include(CMakePackageConfigHelpers)
set(config_folder ${library_folder}/cmake/Outboard)
configure_package_config_file(${packaging}/OutboardConfig.cmake.in ${made}/OutboardConfig.cmake
  INSTALL_DESTINATION ${config_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 any minor version may differ from the one before.
write_basic_package_version_file(${made}/OutboardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT OutboardTargets NAMESPACE outboard:: DESTINATION ${config_folder} COMPONENT client-dev)
install(FILES ${made}/OutboardConfig.cmake ${made}/OutboardConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT client-dev)

# The same packages by the names that pkg-config knows: absl::strings is absl_strings.
set(requires ${theirs})
list(REMOVE_ITEM requires Threads::Threads)
list(TRANSFORM requires REPLACE "^(gRPC|protobuf)::(lib)?" "")
list(TRANSFORM requires REPLACE "^OpenSSL::Crypto$" "libcrypto")
list(TRANSFORM requires REPLACE "^OpenSSL::SSL$" "libssl")
list(TRANSFORM requires REPLACE "::" "_")
list(JOIN requires ", " requires)
string(REGEX REPLACE "[^/]+" ".." up ${library_folder}/pkgconfig)   # from that folder to the prefix
configure_file(${packaging}/outboard-client.pc.in ${made}/outboard-client.pc @ONLY)
install(FILES ${made}/outboard-client.pc DESTINATION ${library_folder}/pkgconfig COMPONENT client-dev)

set(client_documents share/doc/outboard-client-dev)
install(FILES client/examples/linear.cpp ${packaging}/example/CMakeLists.txt
  DESTINATION ${client_documents}/examples COMPONENT client-dev)
install(FILES docs/debugging.md docs/far-away.md docs/latency.md docs/operators.md docs/semantics.md
  docs/symbolic-shapes.md docs/when-it-breaks.md
  DESTINATION ${client_documents} COMPONENT client-dev)

# ---- program

if(NOT OUTBOARD_CLIENT_ONLY)
  # Both in a folder of their own, since `outboard` looks for its compiler beside itself; a link stands on PATH.
  install(TARGETS outboard outboard-compiler RUNTIME DESTINATION lib/outboard COMPONENT program)
  file(CREATE_LINK ../lib/outboard/outboard ${made}/outboard SYMBOLIC)
  install(FILES ${made}/outboard DESTINATION bin COMPONENT program)

  # The manual is what the program itself says of its commands.
  set(manual ${made}/outboard.1.gz)
  add_custom_command(OUTPUT ${manual}
    COMMAND python3 ${packaging}/manual $<TARGET_FILE:outboard> ${manual}
    DEPENDS outboard ${packaging}/manual VERBATIM)
  add_custom_target(outboard_manual ALL DEPENDS ${manual})
  install(FILES ${manual} DESTINATION share/man/man1 COMPONENT program)
  install(FILES docs/blobs.md docs/logs.md docs/metrics.md docs/own-box.md docs/quickstart.md docs/runbook.md docs/sandbox.md
    docs/store.md docs/tls.md docs/tuning.md docs/viz.md docs/when-it-breaks.md
    DESTINATION share/doc/outboard COMPONENT program)
  # For whoever runs a gateway: to be read, and copied into /etc.
  install(DIRECTORY deploy/grafana deploy/nginx deploy/prometheus deploy/systemd
    DESTINATION share/doc/outboard/examples COMPONENT program)
endif()

# ---- Debian packages

# As Debian's own tools ask for who packages something.
set(maintainer "Outboard maintainers <outboard@example.org>")
if(DEFINED ENV{DEBEMAIL} AND DEFINED ENV{DEBFULLNAME})
  set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
foreach(package_of "outboard program" "outboard-client-dev client-dev")
  separate_arguments(package_of)
  list(POP_FRONT package_of package component)
  configure_file(${packaging}/InstallChangelog.cmake.in ${made}/${package}.cmake @ONLY)
  install(SCRIPT ${made}/${package}.cmake COMPONENT ${component})
  install(FILES ${packaging}/copyright DESTINATION share/doc/${package} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME outboard)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL client-dev)
if(NOT OUTBOARD_CLIENT_ONLY)
  list(APPEND CPACK_COMPONENTS_ALL program)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${maintainer}")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME outboard)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "ocl-icd-libopencl1")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "cloud for tensors: gateway, workers, keys and bills
Programs build computations on tensors and send them, as data, to a gateway,
which gives each session a worker, meters it and keeps the books.  The worker
compiles the computations for its processor and runs them.
.
This package has the program outboard with its compiler, for a machine that
others compute on, and for programs that compute where they run.")

set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_NAME outboard-client-dev)
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_SECTION libdevel)
# Of the release that the archive was compiled with: its headers are in the archive's objects. The last two are what
# Debian's CMake files of gRPC look for: a program that they name, and RE2 by pkg-config.
set(depends
  "libgrpc++-dev (>= ${gRPC_VERSION})" "libprotobuf-dev (>= ${Protobuf_VERSION})" "libabsl-dev (>= ${absl_VERSION})"
  libssl-dev protobuf-compiler-grpc pkg-config)
list(JOIN depends ", " CPACK_DEBIAN_CLIENT-DEV_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_RECOMMENDS "outboard (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_SUGGESTS cmake)
set(CPACK_DEBIAN_CLIENT-DEV_DESCRIPTION "cloud for tensors: C++ client library
Tensors whose values live on a machine of a cloud, or on a private worker of
this one.  Operators, gradients, layers and optimisers build a graph, which is
sent when a value is asked for.
.
This package has the headers, a static library, and what CMake's find_package
and pkg-config need to find them.  A program that computes on this machine
needs the package outboard too.")

# cpack would build everything else first.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
include(CPack)
