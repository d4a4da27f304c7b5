# find_package(peal): peal::device, peal::host, peal::nic; with COMPONENTS cuda peal::cuda as well,
# where Peal was built with nvcc.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/peal-targets.cmake)
foreach(component device host nic)
  set(peal_${component}_FOUND TRUE)
endforeach()
if("cuda" IN_LIST peal_FIND_COMPONENTS AND
   EXISTS ${CMAKE_CURRENT_LIST_DIR}/peal-cuda-targets.cmake)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    include(${CMAKE_CURRENT_LIST_DIR}/peal-cuda-targets.cmake)
    set(peal_cuda_FOUND TRUE)
  endif()
endif()
foreach(component IN LISTS peal_FIND_COMPONENTS)
  if(peal_FIND_REQUIRED_${component} AND NOT peal_${component}_FOUND)
    set(peal_FOUND FALSE)
    set(peal_NOT_FOUND_MESSAGE
        "This Peal has no component ${component}, or the CUDA toolkit that it needs is not here.")
  endif()
endforeach()
