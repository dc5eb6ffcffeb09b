# cmake --install build --prefix DIR: a tree that needs nothing of this folder or of .venv.
#   bin/transnormer                  the program
#   lib/transnormer/                 every library it links but the C and C++ runtime (below)
#   share/                           the manual page, completions of bash and zsh
# A folder of its own for the libraries, so that DIR may be /usr/local without other programs taking
# them for theirs. --component gpu, beside that: what a GPU needs, some gigabytes.
# The old kind of run path, which holds for what a library links in turn, too: those of the system
# name no folder of their own.
set_target_properties(transnormer PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/transnormer")
target_link_options(transnormer PRIVATE -Wl,--disable-new-dtags)
install(TARGETS transnormer RUNTIME DESTINATION bin COMPONENT program)

# What the run does is in a script, which knows these names.
function(transnormer_install_script component)
  cmake_parse_arguments(arg "EXCLUDE_FROM_ALL" "" "" ${ARGN})
  set(only "")
  if(arg_EXCLUDE_FROM_ALL)
    set(only EXCLUDE_FROM_ALL)
  endif()
  install(CODE "
    set(PROGRAM \"$<TARGET_FILE:transnormer>\")
    set(TORCH_LIBRARY_DIR \"${TORCH_LIBRARY_DIR}\")
    set(INSTALLED \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    include(\"${CMAKE_SOURCE_DIR}/scripts/cmake/install_${component}.cmake\")"
    COMPONENT ${component} ${only})
endfunction()
transnormer_install_script(program)

if(TRANSNORMER_HAS_CUDA)
  set_target_properties(transnormer_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  target_link_options(transnormer_cuda PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS transnormer_cuda LIBRARY DESTINATION lib/transnormer
    COMPONENT gpu EXCLUDE_FROM_ALL)
endif()
transnormer_install_script(gpu EXCLUDE_FROM_ALL)
