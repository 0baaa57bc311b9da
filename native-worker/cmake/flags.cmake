# Flags that every target shares, and helpers that declare ours.
add_compile_options(-fstack-protector-strong $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=3>)
if(MESHNET_SANITIZE STREQUAL "address")
  set(meshnet_sanitizers address,undefined)
elseif(MESHNET_SANITIZE STREQUAL "thread")
  set(meshnet_sanitizers thread)
elseif(MESHNET_SANITIZE)
  message(FATAL_ERROR "MESHNET_SANITIZE is address, thread or nothing, not '${MESHNET_SANITIZE}'")
endif()
if(meshnet_sanitizers)
  add_compile_options(-fsanitize=${meshnet_sanitizers} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${meshnet_sanitizers})
endif()

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# Warnings are errors in our own code only: a folder that is also a system folder loses its plain -I.
function(meshnet_ours target)
  target_include_directories(${target} SYSTEM PRIVATE "${MESHNET_LLAMA_DIR}/include" "${MESHNET_LLAMA_DIR}/ggml/include"
    "${MESHNET_LLAMA_DIR}/common" "${MESHNET_LLAMA_DIR}/vendor")
  # -Wrestrict is wrong about std::string in g++ 12.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wno-restrict)
endfunction()

# Finished programs are found beside the build folder, not in it.
function(meshnet_binary_folder target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/../bin")
endfunction()

function(meshnet_program target)
  add_executable(${target} ${ARGN})
  meshnet_ours(${target})
  meshnet_binary_folder(${target})
endfunction()
