# transnormer_layer(NAME SOURCES .. [ALWAYS ..] DEPENDS .. [TORCH]): one layer of src/ as a static
# library. DEPENDS names what lies below it, so that the linker and tests/layers_test.py agree on the
# arrows. TORCH gives it LibTorch and the shared precompiled header.
# ALWAYS names sources that nothing refers to, since they add what they hold to a registry before
# main(): the linker takes from a static library only what is referred to, so whatever links the layer
# links their object files themselves.
function(transnormer_layer name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;ALWAYS;DEPENDS" ${ARGN})
  if(NOT arg_SOURCES)
    add_library(transnormer_${name} INTERFACE)
    return()
  endif()
  add_library(transnormer_${name} STATIC ${arg_SOURCES})
  set(targets transnormer_${name})
  if(arg_ALWAYS)
    add_library(transnormer_${name}_always OBJECT ${arg_ALWAYS})
    target_link_libraries(transnormer_${name} INTERFACE $<TARGET_OBJECTS:transnormer_${name}_always>)
    list(APPEND targets transnormer_${name}_always)
  endif()
  foreach(target IN LISTS targets)
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PUBLIC ${arg_DEPENDS} PRIVATE transnormer::compiler)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
    if(arg_TORCH)
      transnormer_use_torch(${target} PUBLIC)
    endif()
  endforeach()
endfunction()

# Links LibTorch and reuses the header that is compiled once, in src/.
function(transnormer_use_torch target visibility)
  target_link_libraries(${target} ${visibility} transnormer::torch)
  target_precompile_headers(${target} REUSE_FROM transnormer_precompiled)
endfunction()

# transnormer_test(NAME SOURCES .. DEPENDS .. [LABEL unit|e2e|dist|gpu] [TORCH])
function(transnormer_test name)
  cmake_parse_arguments(arg "TORCH" "LABEL" "SOURCES;DEPENDS" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    ${arg_DEPENDS} GTest::gtest_main GTest::gmock transnormer::compiler)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    TRANSNORMER_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TRANSNORMER_BINARY="$<TARGET_FILE_DIR:${name}>/../transnormer")
  # Compiles in a sixth to two fifths less time, and what the tests wait for is in the libraries.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests CXX_EXTENSIONS OFF)
  if(arg_TORCH)
    transnormer_use_torch(${name} PRIVATE)
  endif()
  # Several tests run at once: threads that wait must not spin on the cores that others need.
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${arg_LABEL} ENVIRONMENT OMP_WAIT_POLICY=passive
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()
