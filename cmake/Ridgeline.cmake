# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# ridgeline_library(NAME DIRECTORIES a b LINK x y): a static library of every .cpp directly in the given folders.
function(ridgeline_library name)
  cmake_parse_arguments(ARG "MLIR" "" "DIRECTORIES;LINK" ${ARGN})
  set(globs)
  foreach(d ${ARG_DIRECTORIES})
    list(APPEND globs ${CMAKE_CURRENT_SOURCE_DIR}/${d}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_LINK})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_MLIR)
    ridgeline_use_mlir(${name})
  endif()
endfunction()

# LLVM and MLIR are linked statically, all archives in one group, so that one binary carries what it uses and nothing at
# run time can clash with another LLVM in the process. Debian's exported CMake targets pull in the LLVM shared library
# behind the static MLIR ones; the archives are therefore named here.
set(RIDGELINE_LLVM_ROOT "/usr/lib/llvm-22" CACHE PATH "LLVM 22 with MLIR")
if(RIDGELINE_COMPILER)
  if(NOT EXISTS ${RIDGELINE_LLVM_ROOT}/lib/libMLIRIR.a)
    message(FATAL_ERROR "MLIR 22 not found under RIDGELINE_LLVM_ROOT=${RIDGELINE_LLVM_ROOT}; install libmlir-22-dev, mlir-22-tools, llvm-22-dev and liblld-22-dev")
  endif()
  file(GLOB RIDGELINE_LLVM_ARCHIVES ${RIDGELINE_LLVM_ROOT}/lib/libMLIR*.a ${RIDGELINE_LLVM_ROOT}/lib/libLLVM*.a
       ${RIDGELINE_LLVM_ROOT}/lib/liblldELF.a ${RIDGELINE_LLVM_ROOT}/lib/liblldCommon.a)
  list(FILTER RIDGELINE_LLVM_ARCHIVES EXCLUDE REGEX "Test|libMLIR-C|MLIRCAPI|Polly|exegesis|ExecutionEngineShared")
  add_library(ridgeline_llvm INTERFACE)
  target_link_libraries(ridgeline_llvm INTERFACE -Wl,--start-group ${RIDGELINE_LLVM_ARCHIVES} -Wl,--end-group z zstd dl m Threads::Threads)
  set(RIDGELINE_MLIR_TBLGEN ${RIDGELINE_LLVM_ROOT}/bin/mlir-tblgen)
endif()

# Headers of LLVM and MLIR, for the libraries that include them.
function(ridgeline_use_mlir name)
  target_include_directories(${name} SYSTEM PUBLIC ${RIDGELINE_LLVM_ROOT}/include)
  target_include_directories(${name} PUBLIC ${CMAKE_BINARY_DIR})
endfunction()

# ridgeline_tablegen(TARGET file.td out.inc args...): runs mlir-tblgen into the build tree's copy of this folder.
function(ridgeline_tablegen target td out)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${out})
  get_filename_component(dir ${output} DIRECTORY)
  file(MAKE_DIRECTORY ${dir})
  file(GLOB deps CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.td ${CMAKE_CURRENT_SOURCE_DIR}/dialect/*.td)
  add_custom_command(OUTPUT ${output}
    COMMAND ${RIDGELINE_MLIR_TBLGEN} ${ARGN} -I ${RIDGELINE_LLVM_ROOT}/include -I ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${td} -o ${output}
    DEPENDS ${deps} VERBATIM)
  set_property(TARGET ${target} APPEND PROPERTY SOURCES ${output})
endfunction()
