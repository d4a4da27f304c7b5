// The parts that the bring-up list is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bringup/item.hpp"
#include "bringup/machine.hpp"
#include "bringup/pci.hpp"

namespace peal::bringup {

Section check_libraries(const Machine& machine);
Section check_process(const Machine& machine);

struct Nic {
  std::string name;  // mlx5_0
  std::optional<PciPlace> place;
};

struct Nics {
  std::vector<Nic> mlx5;
  std::vector<std::string> others;  // RDMA devices of other kinds
};

Nics find_nics(const Machine& machine);
// What to say where there is no mlx5 device.
Item no_nic(const Machine& machine, const Nics& nics);
// `port`: which of its ports a run would use.
Section check_nic(const Machine& machine, const Nic& nic, std::uint32_t port);

struct Gpu {
  std::uint32_t number = 0;  // CUDA's, or by PCI address where CUDA cannot be asked
  std::string address;
  std::optional<PciPlace> place;
  std::optional<bool> dmabuf;
};

std::vector<Gpu> find_gpus(const Machine& machine);
// `wanted`: the GPU whose threads shall produce, without which none of this is needed.
Section check_gpus(const Machine& machine, const std::vector<Gpu>& gpus,
                   std::optional<std::uint32_t> wanted);
// How a NIC reaches GPUs.
Section check_paths(const Machine& machine, const Nic& nic, const std::vector<Gpu>& gpus);

}  // namespace peal::bringup
