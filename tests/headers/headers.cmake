# Every public header compiles as the only include of a translation unit: with the project's
# compiler as part of the build, with clang++ and nvcc, where there are any, as tests.
if(PEAL_SANITIZE)
  return()  # the sanitizers change nothing here
endif()

file(GLOB_RECURSE PEAL_PUBLIC_HEADERS CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
     ${PROJECT_SOURCE_DIR}/include/peal/*.hpp)
list(FILTER PEAL_PUBLIC_HEADERS EXCLUDE REGEX "^peal/memory/gpu")  # nvcc only
set(PEAL_ALONE_SOURCES)
foreach(header IN LISTS PEAL_PUBLIC_HEADERS)
  string(REPLACE "/" "_" name ${header})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/headers_alone/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n" @ONLY)
  list(APPEND PEAL_ALONE_SOURCES ${source})
endforeach()
add_library(peal_headers_alone OBJECT ${PEAL_ALONE_SOURCES})
target_include_directories(peal_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(peal_headers_alone PRIVATE peal_flags)

find_program(PEAL_CLANGXX NAMES clang++ clang++-14)
if(PEAL_CLANGXX)
  add_test(NAME Headers.CompileAloneWithClang
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/compile_alone.sh ${PEAL_CLANGXX})
endif()
if(PEAL_CUDA AND PEAL_NVCC)
  add_test(NAME Headers.CompileForDeviceWithNvcc
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/compile_alone.sh ${PEAL_NVCC})
endif()
