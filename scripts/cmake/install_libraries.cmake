# Which libraries an installed program carries, found by asking the loader (ldd) for those it takes.

# Left to the machine: the C library, which must fit its kernel and its loader, and GCC's runtime,
# which any program in C++ needs; and of a GPU the driver.
set(LEFT_TO_THE_MACHINE
  "^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libstdc\\+\\+|libgcc_s|libcuda|libnvidia-.*)\\.so(\\..*)?$")

# FILES: what `binary` links, directly or not, less what the machine has; a name that nothing is found
# for is an error.
function(transnormer_libraries_of binary files)
  execute_process(COMMAND ldd ${binary} OUTPUT_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "ldd ${binary} failed")
  endif()
  string(REPLACE "\n" ";" lines "${text}")
  set(found "")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^[ \t]*([^ \t/]+) => (.+)")
      continue()
    endif()
    set(name ${CMAKE_MATCH_1})
    set(answer ${CMAKE_MATCH_2})
    if(name MATCHES "${LEFT_TO_THE_MACHINE}")
      continue()
    endif()
    if(NOT answer MATCHES "^(/[^ ]+)")
      message(FATAL_ERROR "${binary} needs ${name}, which is not found")
    endif()
    list(APPEND found ${CMAKE_MATCH_1})
  endforeach()
  set(${files} "${found}" PARENT_SCOPE)
endfunction()

# Copies files under the names they were found by, links followed; what is there already stays.
function(transnormer_carry directory)
  file(MAKE_DIRECTORY ${directory})
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME)
    get_filename_component(real ${file} REALPATH)
    file(COPY_FILE ${real} ${directory}/${name} ONLY_IF_DIFFERENT)
    file(CHMOD ${directory}/${name} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
endfunction()

function(transnormer_tell_size)
  execute_process(COMMAND du -sh ${INSTALLED}/lib/transnormer OUTPUT_VARIABLE text)
  string(REGEX MATCH "^[^\t ]+" size "${text}")
  message(STATUS "Libraries: ${size} in ${INSTALLED}/lib/transnormer")
endfunction()
