# The assembly that bus_test.cpp reads: of this processor, and of Arm where clang++ is.
set(PEAL_BUS_SOURCE ${CMAKE_CURRENT_LIST_DIR}/bus_points.cpp)
set(PEAL_BUS_ASSEMBLY ${CMAKE_CURRENT_BINARY_DIR}/bus_points.s)
add_custom_command(OUTPUT ${PEAL_BUS_ASSEMBLY}
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -S -I${PROJECT_SOURCE_DIR}/include
          -MD -MF ${PEAL_BUS_ASSEMBLY}.d -MT ${PEAL_BUS_ASSEMBLY} -o ${PEAL_BUS_ASSEMBLY}
          ${PEAL_BUS_SOURCE}
  DEPENDS ${PEAL_BUS_SOURCE} DEPFILE ${PEAL_BUS_ASSEMBLY}.d VERBATIM)
find_program(PEAL_CLANGXX clang++)
if(PEAL_CLANGXX)
  set(PEAL_BUS_ASSEMBLY_AARCH64 ${CMAKE_CURRENT_BINARY_DIR}/bus_points.aarch64.s)
  add_custom_command(OUTPUT ${PEAL_BUS_ASSEMBLY_AARCH64}
    COMMAND ${PEAL_CLANGXX} --target=aarch64-linux-gnu -std=c++20 -O2 -S -DPEAL_BUS_ALONE
            -I${PROJECT_SOURCE_DIR}/include -o ${PEAL_BUS_ASSEMBLY_AARCH64} ${PEAL_BUS_SOURCE}
    DEPENDS ${PEAL_BUS_SOURCE} ${PROJECT_SOURCE_DIR}/include/peal/memory/bus.hpp VERBATIM)
endif()
add_custom_target(peal_bus_assembly DEPENDS ${PEAL_BUS_ASSEMBLY} ${PEAL_BUS_ASSEMBLY_AARCH64})
add_dependencies(peal_tests peal_bus_assembly)
set_source_files_properties(memory/bus_test.cpp PROPERTIES COMPILE_DEFINITIONS
  "PEAL_BUS_ASSEMBLY=\"${PEAL_BUS_ASSEMBLY}\";PEAL_BUS_ASSEMBLY_AARCH64=\"${PEAL_BUS_ASSEMBLY_AARCH64}\"")
