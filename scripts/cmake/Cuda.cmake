# The GPU's side, a library of its own (src/ops/cuda) that the program loads where there is a GPU.
# TRANSNORMER_CUDA: AUTO makes it where a CUDA toolkit is found that fits LibTorch, ON insists, OFF
# leaves it out; a GPU is then still used, by LibTorch's own operations. Sets TRANSNORMER_HAS_CUDA,
# and TRANSNORMER_HAS_NCCL where the library can make NCCL's groups of processes as well.
set(TRANSNORMER_CUDA AUTO CACHE STRING "Build the GPU's kernels: AUTO, ON or OFF")
set_property(CACHE TRANSNORMER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TRANSNORMER_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
  "GPUs that the kernels are compiled for; newer ones translate the last one's when they load it")

# The major version of CUDA that LibTorch is built with; empty where it does not tell. The wheel
# tells in one file, the archive in another.
function(transnormer_torch_cuda version)
  set(found "")
  if(EXISTS ${TORCH_LIBRARY_DIR}/../version.py)
    file(STRINGS ${TORCH_LIBRARY_DIR}/../version.py line REGEX "^cuda")
    string(REGEX MATCH "'([0-9]+)\\." matched "${line}")
  elseif(EXISTS ${TORCH_LIBRARY_DIR}/../build-version)
    file(STRINGS ${TORCH_LIBRARY_DIR}/../build-version line)
    string(REGEX MATCH "cu([0-9]+)[0-9]$" matched "${line}")
  endif()
  if(matched)
    set(found ${CMAKE_MATCH_1})
  endif()
  set(${version} "${found}" PARENT_SCOPE)
endfunction()

# Why the library cannot be made, or nothing; `compiler` becomes an nvcc that fits LibTorch: the
# machine's, else the one that scripts/build.sh installed beside the wheel (`from_wheel`).
function(transnormer_find_cuda fault compiler from_wheel)
  find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS ${TORCH_LIBRARY_DIR} NO_DEFAULT_PATH)
  find_library(TORCH_C10_CUDA_LIBRARY c10_cuda PATHS ${TORCH_LIBRARY_DIR} NO_DEFAULT_PATH)
  if(NOT TORCH_CUDA_LIBRARY OR NOT TORCH_C10_CUDA_LIBRARY)
    set(${fault} "this LibTorch has no CUDA side" PARENT_SCOPE)
    return()
  endif()
  transnormer_torch_cuda(wanted)
  find_program(TRANSNORMER_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS /usr/local/cuda/bin)
  set(of_wheel ${TORCH_LIBRARY_DIR}/../../nvidia/cu${wanted}/bin/nvcc)
  set(why "no CUDA toolkit (nvcc) was found")
  foreach(candidate ${TRANSNORMER_NVCC} ${of_wheel})
    if(NOT EXISTS ${candidate})
      continue()
    endif()
    execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX REPLACE ".*release ([0-9]+)\\..*" "\\1" found "${text}")
    if(NOT wanted STREQUAL "" AND NOT wanted STREQUAL found)
      set(why "LibTorch wants CUDA ${wanted}, ${candidate} is of CUDA ${found}")
      continue()
    endif()
    set(${fault} "" PARENT_SCOPE)
    set(${compiler} ${candidate} PARENT_SCOPE)
    string(COMPARE EQUAL ${candidate} ${of_wheel} is_of_wheel)
    set(${from_wheel} ${is_of_wheel} PARENT_SCOPE)
    return()
  endforeach()
  set(${fault} ${why} PARENT_SCOPE)
endfunction()

# CUDA::cudart and CUDAToolkit_INCLUDE_DIRS of the wheel, which CMake's own search does not know.
macro(transnormer_cuda_of_wheel nvcc)
  get_filename_component(cuda_root ${nvcc}/../.. REALPATH)
  file(GLOB cuda_runtime ${cuda_root}/lib/libcudart.so.*)
  if(NOT cuda_runtime)
    message(FATAL_ERROR "${cuda_root}/lib holds no libcudart.so: remove .venv to have it made again")
  endif()
  set(CUDAToolkit_INCLUDE_DIRS ${cuda_root}/include)
  add_library(CUDA::cudart SHARED IMPORTED GLOBAL)
  set_target_properties(CUDA::cudart PROPERTIES IMPORTED_LOCATION ${cuda_runtime})
endmacro()

# Whether nvcc compiles with this C++ compiler; asked once.
function(transnormer_try_nvcc nvcc works)
  set(asked "${nvcc} with ${CMAKE_CXX_COMPILER}")
  if(NOT TRANSNORMER_NVCC_TRIED STREQUAL asked)
    set(folder ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc)
    file(WRITE ${folder}/empty.cu "__global__ void nothing() {}\n")
    execute_process(
      COMMAND ${nvcc} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -c ${folder}/empty.cu
        -o ${folder}/empty.o
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    set(TRANSNORMER_NVCC_TRIED ${asked} CACHE INTERNAL "")
    set(TRANSNORMER_NVCC_STATUS ${status} CACHE INTERNAL "")
  endif()
  if(TRANSNORMER_NVCC_STATUS EQUAL 0)
    set(${works} ON PARENT_SCOPE)
  else()
    set(${works} OFF PARENT_SCOPE)
  endif()
endfunction()

# transnormer_cuda_object(OBJECT SOURCE LOG): how to compile SOURCE. By a command of its own, not as
# CMake's language CUDA, whose trial links what the wheel of nvcc lacks, and which does not know that
# nvcc speaks C++20 before CMake 3.26. LOG keeps what the assembler tells of each kernel.
function(transnormer_cuda_object object source log)
  foreach(gpu ${TRANSNORMER_CUDA_ARCHITECTURES})
    string(REPLACE "-real" "" number ${gpu})
    set(code "sm_${number}")
    if(gpu STREQUAL number)
      set(code "[compute_${number},sm_${number}]")
    endif()
    list(APPEND targets "--generate-code=arch=compute_${number},code=${code}")
  endforeach()
  add_custom_command(
    OUTPUT ${object}
    BYPRODUCTS ${log}
    COMMAND ${CMAKE_SOURCE_DIR}/scripts/cmake/keep_stderr.sh ${log}
      ${CCACHE_PROGRAM} ${TRANSNORMER_CUDA_COMPILER} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3
      -DNDEBUG -I${CMAKE_SOURCE_DIR}/src ${targets} --expt-relaxed-constexpr -Xptxas=-v
      -Xcompiler=-fPIC,-Wall,-Wextra $<$<BOOL:${TRANSNORMER_WERROR}>:-Werror=all-warnings>
      -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "Building CUDA object ${object}"
    COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

set(TRANSNORMER_HAS_CUDA OFF)
if(TRANSNORMER_CUDA STREQUAL "AUTO" OR TRANSNORMER_CUDA)
  transnormer_find_cuda(cuda_fault TRANSNORMER_CUDA_COMPILER cuda_from_wheel)
  if(NOT cuda_fault)
    transnormer_try_nvcc(${TRANSNORMER_CUDA_COMPILER} nvcc_works)
    if(NOT nvcc_works)
      set(cuda_fault "${TRANSNORMER_CUDA_COMPILER} does not work with this C++ compiler")
    endif()
  endif()
  if(NOT cuda_fault)
    if(cuda_from_wheel)
      transnormer_cuda_of_wheel(${TRANSNORMER_CUDA_COMPILER})
    else()
      get_filename_component(CUDAToolkit_ROOT ${TRANSNORMER_CUDA_COMPILER}/../.. REALPATH)
      find_package(CUDAToolkit REQUIRED)
    endif()
    set(TRANSNORMER_HAS_CUDA ON)
    message(STATUS
      "GPU kernels: for ${TRANSNORMER_CUDA_ARCHITECTURES}, by ${TRANSNORMER_CUDA_COMPILER}")
  elseif(TRANSNORMER_CUDA STREQUAL "AUTO")
    message(STATUS "GPU kernels: left out, ${cuda_fault}")
  else()
    message(FATAL_ERROR "TRANSNORMER_CUDA=${TRANSNORMER_CUDA}: ${cuda_fault}")
  endif()
endif()

# LibTorch's header of NCCL's groups includes those of cuSOLVER and others, which a toolkit may lack.
set(TRANSNORMER_HAS_NCCL OFF)
if(TRANSNORMER_HAS_CUDA)
  find_path(NCCL_INCLUDE_DIR nccl.h
    HINTS ${TORCH_LIBRARY_DIR}/../../nvidia/nccl/include ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUSOLVER_INCLUDE_DIR cusolverDn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  if(NCCL_INCLUDE_DIR AND CUSOLVER_INCLUDE_DIR)
    set(TRANSNORMER_HAS_NCCL ON)
  else()
    message(STATUS "NCCL: left out, nccl.h or cusolverDn.h was not found")
  endif()
endif()
