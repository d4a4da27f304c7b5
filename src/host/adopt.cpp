#include "peal/host/adopt.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "host/layout.hpp"
#include "host/proxy_ring.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "verbs/host_memory.hpp"

namespace peal {

struct AdoptedQueue::Impl {
  explicit Impl(std::shared_ptr<verbs::DeviceMemory> m) : memory(std::move(m)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (block != nullptr) memory->release(block, bytes);
  }

  std::shared_ptr<verbs::DeviceMemory> memory;
  void* block = nullptr;  // QueueState, the proxy's word, marks
  std::size_t bytes = 0;
  QueueHandle handle;
  host::ProxyQueue proxy;
};

namespace {

[[noreturn]] void refuse_to_adopt(const std::string& why) {
  throw Error(EINVAL, "a queue cannot be adopted: " + why);
}

void require_address(const void* address, std::uintptr_t alignment, const std::string& what) {
  if (address == nullptr) refuse_to_adopt(what + " has no address");
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    refuse_to_adopt(what + " is not aligned to " + std::to_string(alignment) + " bytes");
  }
}

void check_numbers(const ForeignQueue& q) {
  if (!std::has_single_bit(q.depth) || q.depth > mlx5::kMaxSqDepth) {
    refuse_to_adopt("its depth must be a power of two from 1 to " +
                    std::to_string(mlx5::kMaxSqDepth) + ", not " + std::to_string(q.depth));
  }
  if (!std::has_single_bit(q.cq_depth)) {
    refuse_to_adopt("the CQ's entries must be a power of two, not " + std::to_string(q.cq_depth));
  }
  if (q.completion == CompletionMode::kEvery && q.cq_depth < q.depth) {
    refuse_to_adopt("a CQ of " + std::to_string(q.cq_depth) +
                    " entries cannot have a CQE for each of " + std::to_string(q.depth) + " slots");
  }
  if (q.qpn == Qpn() || q.qpn.value > 0xffffff) {
    refuse_to_adopt("its QPN must be from 1 to 0xffffff, not " + std::to_string(q.qpn.value));
  }
  if (q.max_message_bytes == 0 || q.max_message_bytes > std::uint64_t{1} << 30) {
    refuse_to_adopt("its largest message must be from 1 byte to 2^30, not " +
                    std::to_string(q.max_message_bytes));
  }
}

void check_places(const ForeignQueue& q) {
  require_address(q.sq, mlx5::kSlotBytes, "the send queue");
  require_address(q.cq, mlx5::kCqeBytes, "the CQ");
  require_address(q.doorbell, 8, "the doorbell register");
  if (q.doorbell_record) {
    if (q.dbrec == nullptr) {
      refuse_to_adopt(
          "the doorbell record has no address; a queue without one says doorbell_record = false");
    }
    require_address(q.dbrec, 4, "the doorbell record");
  } else if (q.dbrec != nullptr) {
    refuse_to_adopt("it has a doorbell record, but says that it has none");
  }
}

void check_handler(const ForeignQueue& q, const verbs::DeviceMemory& memory) {
  if (q.handler == NicHandler::kAutomatic) {
    refuse_to_adopt(
        "its handler must be direct or proxy: nobody asks whether the doorbell is mapped");
  }
  if (q.handler == NicHandler::kProxy && !memory.reached_by_cpu()) {
    refuse_to_adopt("the CPU does not reach its counters, as a thread that rings for it must");
  }
}

void read_from(verbs::DeviceMemory& memory, void* to, const void* from, std::size_t bytes,
               const char* what) {
  if (const int error = memory.copy_from_device(to, from, bytes)) {
    throw system_error(error, std::string("reading an adopted queue's ") + what);
  }
}

void check_record(const ForeignQueue& q, verbs::DeviceMemory& memory) {
  if (!q.doorbell_record) return;
  std::uint32_t word = 0;
  read_from(memory, &word, q.dbrec, sizeof word, "doorbell record");
  const std::uint16_t next = mlx5::decode_dbrec(word);
  if (next == static_cast<std::uint16_t>(q.first_index)) return;
  refuse_to_adopt("its doorbell record says that the next WQE is " + std::to_string(next) +
                  " modulo 65536, but first_index is " + std::to_string(q.first_index));
}

// The last CQE, if there was one, must be that of the WQE before the first.
void check_last_cqe(const ForeignQueue& q, const mlx5::CqeOwnerWord& last) {
  if (last.opcode == mlx5::CqeOpcode::kInvalid) return;
  if (last.opcode != mlx5::CqeOpcode::kRequester) {
    refuse_to_adopt("the last entry of its CQ is no success: reset the QP first");
  }
  if (last.wqe_counter == static_cast<std::uint16_t>(q.first_index - 1)) return;
  refuse_to_adopt("the last CQE is of WQE " + std::to_string(last.wqe_counter) +
                  " modulo 65536, but first_index is " + std::to_string(q.first_index) +
                  (q.completion == CompletionMode::kEvery ? ": that or cq_base is wrong" : ""));
}

// `n` entries from CQE `number` on, at most one more than the CQ has.
std::vector<mlx5::CqeOwnerWord> owner_words(const ForeignQueue& q, verbs::DeviceMemory& memory,
                                            std::uint64_t number, std::uint64_t n) {
  std::vector<mlx5::Cqe> entries(n);
  for (std::uint64_t i = 0; i < n;) {
    const std::uint64_t slot = (number + i) & (q.cq_depth - 1);
    const std::uint64_t run = std::min(n - i, q.cq_depth - slot);
    read_from(memory, &entries[i], static_cast<const mlx5::Cqe*>(q.cq) + slot,
              run * mlx5::kCqeBytes, "CQ");
    i += run;
  }
  std::vector<mlx5::CqeOwnerWord> words;
  for (const mlx5::Cqe& cqe : entries) {
    words.push_back(mlx5::decode_cqe_owner_word(cqe.word[mlx5::kCqeOwnerWord]));
  }
  return words;
}

// Any that looks written already would be taken for the CQE of a WQE to come.
void check_ring(const ForeignQueue& q, verbs::DeviceMemory& memory) {
  const std::uint64_t last = q.first_index + q.cq_base - 1;
  const auto words = owner_words(q, memory, last, std::uint64_t{q.depth} + 1);
  check_last_cqe(q, words[0]);
  for (std::uint64_t i = 1; i < words.size(); ++i) {
    if (words[i].opcode == mlx5::CqeOpcode::kInvalid) continue;
    if (words[i].owner != mlx5::cqe_owner(last + i, q.cq_depth)) continue;
    refuse_to_adopt("entry " + std::to_string((last + i) & (q.cq_depth - 1)) +
                    " of its CQ has the owner bit of a CQE to come: cq_base or first_index is "
                    "wrong, or the CQ is not as it was made");
  }
}

void check_cq(const ForeignQueue& q, verbs::DeviceMemory& memory) {
  if (q.completion == CompletionMode::kEvery) return check_ring(q, memory);
  check_last_cqe(q, owner_words(q, memory, 0, 1)[0]);
}

QueueHandle handle_of(const ForeignQueue& q) {
  QueueHandle h;
  h.depth = q.depth;
  h.sq = static_cast<mlx5::Slot*>(q.sq);
  h.dbrec = q.dbrec;
  if (q.handler == NicHandler::kDirect) h.doorbell = static_cast<std::uint64_t*>(q.doorbell);
  h.nic_cq = static_cast<const mlx5::Cqe*>(q.cq);
  h.cq_base = q.cq_base;
  h.max_message_bytes = q.max_message_bytes;
  h.cq_depth = q.cq_depth;
  h.qpn = q.qpn;
  h.completion = q.completion;
  h.has_record = q.doorbell_record;
  h.fence_scope = q.fence_scope;
  h.handler = {q.handler, q.handler, HandlerReason::kRequested};
  return h;
}

}  // namespace

AdoptedQueue adopt(const ForeignQueue& q, std::shared_ptr<verbs::DeviceMemory> memory) {
  if (memory == nullptr) memory = std::make_shared<verbs::HostMemory>();
  check_numbers(q);
  check_places(q);
  check_handler(q, *memory);
  check_record(q, *memory);
  check_cq(q, *memory);

  struct Counters {
    QueueState state;
    ProxyWord proxy;
  } start;
  start.state.reserved = start.state.ready = start.state.rung = q.first_index;
  start.state.completed = start.proxy.pi = q.first_index;

  auto impl = std::make_unique<AdoptedQueue::Impl>(std::move(memory));
  impl->bytes = sizeof start + q.depth * sizeof(std::uint64_t);
  impl->block = impl->memory->allocate(impl->bytes);
  if (impl->block == nullptr) throw system_error(errno, "allocating an adopted queue's counters");
  if (const int error = impl->memory->copy_to_device(impl->block, &start, sizeof start)) {
    throw system_error(error, "copying an adopted queue's counters");
  }
  auto* counters = static_cast<Counters*>(impl->block);
  impl->handle = handle_of(q);
  impl->handle.state = &counters->state;
  impl->handle.marks = reinterpret_cast<std::uint64_t*>(counters + 1);  // zeroed by allocate()
  if (q.handler == NicHandler::kProxy) {
    impl->handle.proxy = &counters->proxy;
    impl->proxy = {&counters->proxy, q.dbrec,      static_cast<std::uint64_t*>(q.doorbell), q.qpn,
                   q.first_index,    q.fence_scope};
  }
  return AdoptedQueue(std::move(impl));
}

AdoptedQueue::AdoptedQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdoptedQueue::AdoptedQueue(AdoptedQueue&&) noexcept = default;
AdoptedQueue& AdoptedQueue::operator=(AdoptedQueue&&) noexcept = default;
AdoptedQueue::~AdoptedQueue() = default;

QueueHandle AdoptedQueue::handle(std::uint32_t layout) const {
  host::require_layout(layout);
  return impl_->handle;
}

bool AdoptedQueue::ring() {
  return impl_->proxy.word != nullptr && host::ring_if_told<CpuMemory>(impl_->proxy);
}

QueueState AdoptedQueue::counters() const {
  QueueState copy;
  read_from(*impl_->memory, &copy, impl_->handle.state, sizeof copy, "counters");
  return copy;
}

HandedBack AdoptedQueue::hand_back() {
  const QueueState now = counters();
  if (now.error != 0) {
    throw Error(EIO, "an adopted queue cannot be handed back after an error: reset its QP");
  }
  if (now.completed != now.reserved) {
    throw Error(EBUSY, "an adopted queue cannot be handed back: " +
                           std::to_string(now.reserved - now.completed) +
                           " of its slots have not been seen to complete");
  }
  const HandedBack end{now.reserved, now.reserved + impl_->handle.cq_base};
  impl_.reset();
  return end;
}

}  // namespace peal
