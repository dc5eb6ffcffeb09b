# Settings of our own targets, carried by the interface target transnormer::compiler.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(TRANSNORMER_SANITIZE "" CACHE STRING "Sanitizers as -fsanitize names them: address,undefined or thread")
option(TRANSNORMER_FUZZ "Only the fuzzers of tests/fuzz, by clang with libFuzzer" OFF)
option(TRANSNORMER_WERROR "Warnings are errors" ON)

add_library(transnormer_compiler INTERFACE)
add_library(transnormer::compiler ALIAS transnormer_compiler)
target_compile_features(transnormer_compiler INTERFACE cxx_std_20)
# x86-64-v2 is the oldest processor served; wider instructions are chosen at run time.
# Contraction is off so that the same formula gives the same bits wherever it is compiled.
target_compile_options(transnormer_compiler INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<BOOL:${TRANSNORMER_WERROR}>:-Werror>
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string that are not there (GCC bug 105651).
  target_compile_options(transnormer_compiler INTERFACE -Wno-restrict)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(transnormer_compiler INTERFACE -march=x86-64-v2)
endif()
if(TRANSNORMER_SANITIZE)
  target_compile_options(transnormer_compiler INTERFACE
    -fsanitize=${TRANSNORMER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(transnormer_compiler INTERFACE -fsanitize=${TRANSNORMER_SANITIZE})
endif()
if(TRANSNORMER_FUZZ)
  target_compile_options(transnormer_compiler INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ccache, where there is one. The sloppiness is what a precompiled header needs to be cached.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
  target_compile_options(transnormer_compiler INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
