// What a library like NVSHMEM does with Peal, in small: each PE has a symmetric heap, where the
// same offset names the same object everywhere. Exits with 0 when every byte arrived.
#include <algorithm>
#include <vector>

#include "peal/device/producer.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"

class Pe {
 public:
  struct Address {  // what the PEs tell each other
    peal::QueuePairAddress qp;
    std::uint64_t heap;
    peal::Rkey rkey;
  };

  explicit Pe(const peal::Provider& nic) : context_(peal::Context::open(nic)) {}
  Pe(const Pe&) = delete;
  Address address() const { return {qp_.address(), region_.address(), region_.rkey()}; }
  void connect(const Address& peer) { qp_.connect((peer_ = peer).qp); }

  // Returns when it is posted. The source may be changed, and all has been placed, after quiet().
  peal::Status put_nbi(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    return producer_.put(
        {region_.address() + from, region_.lkey(), peer_.heap + to, peer_.rkey, bytes});
  }
  peal::Status quiet() { return producer_.flush(); }

  std::vector<unsigned char> heap = std::vector<unsigned char>(1 << 20);

 private:
  peal::Context context_;
  peal::MemoryRegion region_ =
      peal::MemoryRegion::create(context_, heap.data(), heap.size(), peal::Access::kRemoteWrite);
  peal::QueuePair qp_ = peal::QueuePair::create(context_, {.depth = 256});
  peal::InFlight fifo_[64];  // a place that the producer knows
  peal::Producer<peal::CpuMemory, peal::Sharing::kExclusive> producer_{
      qp_.handle(), {.window = 64}, fifo_};
  Address peer_{};
};

int main() {
  const auto fabric = peal::SoftwareFabric::create();
  Pe a(fabric.provider(0)), b(fabric.provider(1));
  a.connect(b.address());
  b.connect(a.address());
  std::fill(a.heap.begin(), a.heap.end(), static_cast<unsigned char>(42));
  auto status = peal::Status::kOk;
  for (std::uint64_t at = 0; at != a.heap.size() && status == peal::Status::kOk; at += 4096) {
    status = a.put_nbi(at, at, 4096);
  }
  if (status == peal::Status::kOk) status = a.quiet();
  return status == peal::Status::kOk && a.heap == b.heap ? 0 : 1;
}
