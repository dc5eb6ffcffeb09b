# Beside the program itself: its libraries, and what it says about itself.
include(${CMAKE_CURRENT_LIST_DIR}/install_libraries.cmake)

transnormer_libraries_of(${PROGRAM} libraries)
transnormer_carry(${INSTALLED}/lib/transnormer ${libraries})

function(transnormer_written_by_program file)
  get_filename_component(directory ${INSTALLED}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${directory})
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${INSTALLED}/${file} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} ${ARGN} failed")
  endif()
  message(STATUS "Installing: ${INSTALLED}/${file}")
endfunction()
transnormer_written_by_program(share/man/man1/transnormer.1 manual)
transnormer_written_by_program(share/bash-completion/completions/transnormer completion bash)
transnormer_written_by_program(share/zsh/site-functions/_transnormer completion zsh)
transnormer_tell_size()
