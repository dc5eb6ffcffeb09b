# Describes LibTorch as transnormer::torch. The wheel's own find_package stops where no CUDA toolkit
# is installed, so its libraries are named here. They are looked for in CMAKE_PREFIX_PATH (an
# unpacked LibTorch archive), then in the Python environment that scripts/build.sh makes.
set(TRANSNORMER_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH
  "Python whose torch package is built against")

set(torch_hint "")
if(EXISTS ${TRANSNORMER_PYTHON})
  execute_process(
    COMMAND ${TRANSNORMER_PYTHON} -I -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

find_path(TORCH_INCLUDE_DIR ATen/ATen.h HINTS ${torch_hint} PATH_SUFFIXES include)
find_library(TORCH_CPU_LIBRARY torch_cpu HINTS ${torch_hint} PATH_SUFFIXES lib)
find_library(TORCH_C10_LIBRARY c10 HINTS ${torch_hint} PATH_SUFFIXES lib)
if(NOT TORCH_INCLUDE_DIR OR NOT TORCH_CPU_LIBRARY OR NOT TORCH_C10_LIBRARY)
  message(FATAL_ERROR
    "LibTorch was not found. Run scripts/build.sh, which installs it into .venv, or name an "
    "unpacked LibTorch with -DCMAKE_PREFIX_PATH=DIR.")
endif()
get_filename_component(TORCH_LIBRARY_DIR ${TORCH_CPU_LIBRARY} DIRECTORY)
message(STATUS "LibTorch: ${TORCH_LIBRARY_DIR}")

foreach(part c10 torch_cpu)
  add_library(transnormer_${part} SHARED IMPORTED)
  set_target_properties(transnormer_${part} PROPERTIES
    IMPORTED_LOCATION ${TORCH_LIBRARY_DIR}/lib${part}.so
    IMPORTED_SONAME lib${part}.so)
endforeach()
add_library(transnormer_torch INTERFACE)
add_library(transnormer::torch ALIAS transnormer_torch)
target_include_directories(transnormer_torch SYSTEM INTERFACE
  ${TORCH_INCLUDE_DIR} ${TORCH_INCLUDE_DIR}/torch/csrc/api/include)
target_link_libraries(transnormer_torch INTERFACE transnormer_torch_cpu transnormer_c10)
set(CMAKE_BUILD_RPATH ${TORCH_LIBRARY_DIR})
