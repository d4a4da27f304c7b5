// Compiler differences. The only file that looks at __CUDACC__.
#pragma once

#if defined(__CUDACC__)
#define PEAL_HOST_DEVICE __host__ __device__
#else
#define PEAL_HOST_DEVICE
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Peal assumes a little-endian host: the queue formats are big-endian and are swapped."
#endif
