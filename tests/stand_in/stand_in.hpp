// What stands behind the two libraries of this folder, which take the place of the system's
// libibverbs and libmlx5 in tests: software ConnectXs, so that all that lies between the command
// and those libraries' functions runs as it would with a NIC. No device is on a bus behind it, and
// a run says so.
//
// The environment says what they are:
//   PEAL_STAND_IN_LINK_LAYER=ethernet   ports with a GID table; else InfiniBand
//   PEAL_STAND_IN_PKEYS=K,...           the ports' table of partition keys; else 0xffff alone
//   PEAL_STAND_IN_REFUSE=NAME=ERRNO,... operations that fail
//   PEAL_STAND_IN_FD=N                  one device, joined to another process's by this socket;
//   else
//                                       two, joined to each other
//   PEAL_STAND_IN_NUMBER=N              of that one device: 1 or 2, and the other's the other
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "verbs/verbs.hpp"

namespace peal::stand_in {

// The table that serves an open device, and that which made an object of libmlx5.
verbs::Verbs& of(ibv_context* context);
verbs::Verbs& maker_of(const void* object);
// Notes who made it; answers with it.
template <class T>
T* made(T* object, verbs::Verbs& by);
void note(const void* object, verbs::Verbs& by);
void forget(const void* object);

ibv_context* open(ibv_device* device);

struct Ah {
  ibv_ah ah{};
  mlx5_wqe_av av{};
};

template <class T>
T* made(T* object, verbs::Verbs& by) {
  if (object != nullptr) note(object, by);
  return object;
}

}  // namespace peal::stand_in
