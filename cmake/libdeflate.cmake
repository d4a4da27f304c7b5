# Makes the target peal::libdeflate, whose CRC-32 the packets of peal::nic need, where the machine has
# the library. Used by the build and by what is installed.
find_path(PEAL_LIBDEFLATE_INCLUDE libdeflate.h)
find_library(PEAL_LIBDEFLATE NAMES libdeflate.a deflate)
mark_as_advanced(PEAL_LIBDEFLATE_INCLUDE PEAL_LIBDEFLATE)
if(PEAL_LIBDEFLATE_INCLUDE AND PEAL_LIBDEFLATE AND NOT TARGET peal::libdeflate)
  add_library(peal::libdeflate UNKNOWN IMPORTED GLOBAL)
  set_target_properties(peal::libdeflate PROPERTIES IMPORTED_LOCATION ${PEAL_LIBDEFLATE}
                        INTERFACE_INCLUDE_DIRECTORIES ${PEAL_LIBDEFLATE_INCLUDE})
endif()
