// The data path's headers as C++17, and nothing to link: what a library whose producers have a
// memory and a control path of their own compiles. (CpuMemory is C++20.) Exits with 0 when a
// doorbell reads as it was written.
#include "peal/device/producer.hpp"
#include "peal/device/put.hpp"
#include "peal/device/wait.hpp"

static_assert(__cplusplus == 201703L, "the data path is compiled as C++17 here");

int main() {
  const auto doorbell =
      peal::mlx5::decode_doorbell(peal::mlx5::encode_doorbell(7, peal::Qpn(0x123)));
  return doorbell.pi() == 7 && doorbell.qpn == peal::Qpn(0x123) ? 0 : 1;
}
