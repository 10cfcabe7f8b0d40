# Precompiled headers. Reading the standard library, Abseil, gRPC and LLVM is two thirds of what compiling a file costs
# (docs/measurements/2026-11-22-redesign.md), so that each of the four sets of cmake/precompiled/ is read once.
#
# A target takes the largest set of which it links the packages itself, not through another library: nobody keeps a
# list, and what reads neither messages nor services does not pay for them (0.3 s of processor time a file for gRPC's
# set over the base one). A set is compiled once for code that is position-independent and once for what is not, and only
# where some target wants it.
option(OUTBOARD_PCH "Precompile the packages' headers" ${PROJECT_IS_TOP_LEVEL})

# ob_precompile(TARGET): to be called once the target exists; which set it takes is decided at the end of configuring.
function(ob_precompile target)
  set_property(GLOBAL APPEND PROPERTY OUTBOARD_PRECOMPILED ${target})
endfunction()

# Called at the end of the top CMakeLists.txt.
function(ob_precompile_all)
  if(NOT OUTBOARD_PCH)
    return()
  endif()
  get_property(targets GLOBAL PROPERTY OUTBOARD_PRECOMPILED)
  foreach(target ${targets})
    get_target_property(direct ${target} LINK_LIBRARIES)
    if("GTest::gtest" IN_LIST direct OR "GTest::gtest_main" IN_LIST direct)
      set(kind test)
    elseif("ob_llvm" IN_LIST direct)
      set(kind llvm)
    elseif("ob_proto" IN_LIST direct)
      set(kind grpc)
    else()
      set(kind base)
    endif()
    get_target_property(independent ${target} POSITION_INDEPENDENT_CODE)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      set(independent OFF)  # a program is compiled with -fPIE in either case
    endif()
    set(header ob_precompiled_${kind})
    if(independent)
      string(APPEND header _pic)
    endif()
    if(NOT TARGET ${header})
      # A library of one empty file, whose header the others reuse.
      file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/${header}.cc CONTENT "" @ONLY)
      add_library(${header} OBJECT ${PROJECT_BINARY_DIR}/precompiled/${header}.cc)
      set_target_properties(${header} PROPERTIES POSITION_INDEPENDENT_CODE ${independent})
      target_include_directories(${header} PRIVATE ${PROJECT_SOURCE_DIR})
      target_precompile_headers(${header} PRIVATE <cmake/precompiled/${kind}.h>)
      if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
        # Else the header differs each time it is made, and ccache finds nothing.
        target_compile_options(${header} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
      else()
        target_compile_options(${header} PRIVATE -fpch-preprocess)
      endif()
      if(kind STREQUAL test)
        target_link_libraries(${header} PRIVATE GTest::gtest)  # for its definitions
      endif()
      if(kind STREQUAL llvm)
        target_include_directories(${header} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
      endif()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${header})
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
  endforeach()
endfunction()
