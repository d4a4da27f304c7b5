#include "engine/gpu/gpu_engine.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/gpu/nic_kernel.hpp"
#include "peal/host/error.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::engine {
namespace {

constexpr std::chrono::seconds kAnswerDeadline{10};
constexpr std::size_t kBounceBytes = 256;  // more than any one thing that a dump reads

using cuda::must;
using cuda::OnGpu;
using cuda::pinned;

int device_of(const GpuEngineOptions& options) {
  int device = options.device;
  if (device < 0) must(cudaGetDevice(&device), "asking for the current GPU");
  return device;
}

template <class T>
T* on_gpu(std::size_t count, cudaStream_t stream) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, count * sizeof(T)), "allocating GPU memory for the NIC");
  must(cudaMemsetAsync(memory, 0, count * sizeof(T), stream), "clearing GPU memory of the NIC");
  return static_cast<T*>(memory);
}
nic::Progress progress_of(const gpu::Queue& queue, const nic::QpEntry& qp) {
  const gpu::BackState& back = queue.back;
  nic::Progress p;
  p.cq_produced = back.produced;
  p.done.doorbells = queue.front.doorbells;
  p.done.wqes_fetched = back.count[gpu::kWqes];
  p.done.writes = back.count[gpu::kWrites];
  p.done.reads = back.count[gpu::kReads];
  p.done.atomics = back.count[gpu::kAtomics];
  p.done.noops = back.count[gpu::kNoops];
  p.done.cqes = back.count[gpu::kCqes];
  p.done.error_cqes = back.count[gpu::kErrorCqes];
  p.done.bytes_moved = back.count[gpu::kBytes];
  if (queue.front.generation != qp.ring_generation) {  // the kernel has not seen the reset yet
    p.posted = p.fetched = p.completed = qp.first_index;
    return p;
  }
  p.posted = queue.front.posted;
  p.fetched = queue.front.fetched;
  p.completed = back.completed;
  p.arming = queue.front.arming;
  p.reached = queue.front.reached;
  p.held = queue.front.held != 0;
  if (back.syndrome != 0) {
    p.first_error = {back.error_index, back.opcode, back.syndrome, back.vendor_syndrome,
                     nic::as_requester_sees(back.reason)};
  }
  return p;
}

}  // namespace

struct GpuEngine::Impl {
  Impl(Core& a, Core& b, const GpuEngineOptions& o)
      : sender(a), receiver(b), options(o), device(device_of(o)) {}

  void start();
  void stop() noexcept;
  bool ends() const;
  void release() noexcept;
  void publish();
  void take_reports();
  bool ends_any() const;
  // Of all queues at once, as the kernel last told of them.
  void copy_queues() const;
  // By the CPU, of memory that only a GPU reaches.
  void read(void* to, const void* from, std::size_t bytes) const;
  std::uint32_t groups() const { return options.blocks / options.blocks_a_queue; }
  void place_queues();
  void mirror_faults();
  std::string refuse_faults();
  void clear_doorbells();
  // Sets the epoch behind what was copied before on this stream.
  void set_epoch(std::uint64_t e);
  bool answered(std::uint64_t e) const;

  Core& sender;
  Core& receiver;
  GpuEngineOptions options;
  int device;
  std::mutex mutex;
  gpu::Nic nic{};
  gpu::Mirror* staging = nullptr;         // pinned
  std::uint64_t* staged_epoch = nullptr;  // pinned
  gpu::Queue* queues = nullptr;           // pinned, by QP index
  std::byte* bounce = nullptr;            // pinned
  cudaStream_t copies = nullptr;
  cudaStream_t kernel = nullptr;
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> cleared = std::vector<std::uint64_t>(nic::kMaxQps);  // generations
  bool running = false;
  bool served = false;  // the cores know
  bool lost = false;    // the kernel no longer answers
};

void GpuEngine::Impl::start() {
  if (options.blocks == 0 || options.blocks > gpu::kMaxBlocks) {
    throw Error(EINVAL, "a GPU engine has 1 to " + std::to_string(gpu::kMaxBlocks) + " blocks");
  }
  const std::uint32_t together = options.blocks_a_queue;
  if (together == 0 || together > gpu::kMaxBlocksAQueue || options.blocks % together != 0) {
    throw Error(EINVAL, "1 to " + std::to_string(gpu::kMaxBlocksAQueue) +
                            " blocks of a GPU engine serve a queue together, and divide them all");
  }
  const OnGpu on(device);
  must(on.error(), "choosing the GPU of the NIC's kernel");
  must(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "making a stream");
  must(cudaStreamCreateWithFlags(&kernel, cudaStreamNonBlocking), "making a stream");
  for (gpu::Mirror*& m : nic.mirror) m = on_gpu<gpu::Mirror>(1, copies);
  nic.epoch = on_gpu<std::uint64_t>(1, copies);
  nic.seen = pinned<std::uint64_t>(gpu::kMaxBlocks);
  nic.queues = on_gpu<gpu::Queue>(nic::kMaxQps, copies);
  nic.blocks = options.blocks;
  nic.blocks_a_queue = together;
  nic.feeds = on_gpu<gpu::Feed>(options.blocks, copies);
  nic.far_done = on_gpu<std::uint32_t>(groups() * gpu::kSteps, copies);
  nic.null_payload = options.null_payload;
  staging = pinned<gpu::Mirror>(1);
  staged_epoch = pinned<std::uint64_t>(1);
  queues = pinned<gpu::Queue>(nic::kMaxQps);
  bounce = pinned<std::byte>(kBounceBytes);
  if (options.fused) nic.ended = on_gpu<std::uint32_t>(1, copies);
  must(cudaStreamSynchronize(copies), "clearing GPU memory of the NIC");
  if (!options.fused) {
    must(static_cast<cudaError_t>(gpu::launch(nic, kernel)), "starting the NIC's kernel");
    running = true;
  }
  const auto reads = [this](void* to, const void* from, std::size_t n) { read(to, from, n); };
  sender.serve_elsewhere(reads);
  receiver.serve_elsewhere(reads);
  served = true;
}

void GpuEngine::Impl::set_epoch(std::uint64_t e) {
  *staged_epoch = e;
  must(cudaMemcpyAsync(nic.epoch, staged_epoch, sizeof e, cudaMemcpyHostToDevice, copies),
       "telling the NIC's kernel");
  must(cudaStreamSynchronize(copies), "telling the NIC's kernel");
}

bool GpuEngine::Impl::answered(std::uint64_t e) const {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint64_t word = CpuMemory::load_ready_acquire(&nic.seen[g], FenceScope::kSystem);
    const bool takes_them_later = options.fused && word == gpu::kNotRunning;
    if (word != gpu::word_of(e, true) && !takes_them_later) return false;
  }
  return true;
}

void GpuEngine::Impl::publish() {
  const OnGpu on(device);
  // Objects that are members of the tables alone: plain data.
  std::memcpy(static_cast<void*>(&staging->sender), &sender.tables(), sizeof(nic::Tables));
  std::memcpy(static_cast<void*>(&staging->receiver), &receiver.tables(), sizeof(nic::Tables));
  place_queues();
  mirror_faults();
  clear_doorbells();
  ++epoch;
  must(cudaMemcpyAsync(nic.mirror[epoch & 1], staging, sizeof(gpu::Mirror), cudaMemcpyHostToDevice,
                       copies),
       "copying tables to the NIC's kernel");
  set_epoch(epoch);
  const auto deadline = std::chrono::steady_clock::now() + kAnswerDeadline;
  while (!answered(epoch)) {
    if (std::chrono::steady_clock::now() > deadline) {
      lost = true;
      throw Error(ETIMEDOUT, "the NIC's kernel did not take new tables within 10 s");
    }
    std::this_thread::yield();
  }
}

// Each new one takes the first place that is free: groups come first, so that each serves as many.
void GpuEngine::Impl::place_queues() {
  const auto& qps = staging->sender.qps;
  const std::uint32_t places = groups() * gpu::kQueuesABlock;
  std::vector<bool> placed(nic::kMaxQps);
  for (std::uint32_t p = 0; p < places; ++p) {
    std::uint32_t& at = staging->queue[p];
    if (qps[at].qpn.value == 0) at = 0;
    placed[at] = true;
  }
  std::uint32_t p = 0;
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    if (qps[i].qpn.value == 0 || placed[i]) continue;
    while (p < places && staging->queue[p] != 0) ++p;
    if (p == places) {
      throw Error(ENOSPC, "a GPU engine of " + std::to_string(options.blocks) + " blocks, " +
                              std::to_string(options.blocks_a_queue) + " a queue, serves at most " +
                              std::to_string(places) + " queues");
    }
    staging->queue[p] = i;
  }
}

void GpuEngine::Impl::mirror_faults() {
  staging->faults = 0;
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const nic::ArmedFaults* armed = sender.armed_faults(staging->sender.qps[i].qpn);
    if (armed == nullptr) continue;
    for (const nic::ArmedFault& f : armed->all()) {
      staging->fault[staging->faults++] = {i, armed->arming(), f.fault.value, f.index,
                                           f.fault.kind};
    }
  }
}

// Why what was armed cannot be served; it is disarmed then.
std::string GpuEngine::Impl::refuse_faults() {
  std::string why;
  std::size_t faults = 0;
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const Qpn qpn = sender.tables().qps[i].qpn;
    const nic::ArmedFaults* armed = sender.armed_faults(qpn);
    if (armed == nullptr || armed->all().empty()) continue;
    const auto& all = armed->all();
    faults += all.size();
    const bool delays = std::any_of(all.begin(), all.end(), [](const nic::ArmedFault& f) {
      return f.fault.kind == nic::FaultKind::kDelay;
    });
    if (delays) {
      why = "the GPU engine does not serve the fault delay";
    } else if (all.size() > gpu::kFaultsAQueue || faults > gpu::kMaxFaults) {
      why = "the GPU engine serves at most " + std::to_string(gpu::kFaultsAQueue) +
            " faults of a queue and " + std::to_string(gpu::kMaxFaults) + " in all";
    } else {
      continue;
    }
    faults -= all.size();
    sender.arm_faults(qpn, {});
  }
  return why;
}

// A ring of the value that its register still holds from before would be no news to the kernel.
void GpuEngine::Impl::clear_doorbells() {
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const nic::QpEntry& qp = staging->sender.qps[i];
    if (qp.qpn.value == 0 || cleared[i] == qp.ring_generation) continue;
    cleared[i] = qp.ring_generation;
    std::uint64_t* doorbell = staging->sender.uars[qp.uar].doorbell(qp.has_record());
    cudaPointerAttributes place{};
    must(cudaPointerGetAttributes(&place, doorbell), "asking where a doorbell lies");
    if (place.type == cudaMemoryTypeDevice) {
      must(cudaMemsetAsync(doorbell, 0, sizeof *doorbell, copies), "clearing a doorbell");
    } else {
      // By the CPU: a copy from host to host may wait for more than itself.
      CpuMemory::store_relaxed(doorbell, std::uint64_t{0});
    }
  }
}

void GpuEngine::Impl::read(void* to, const void* from, std::size_t bytes) const {
  const OnGpu on(device);
  if (bytes > kBounceBytes) throw Error(EINVAL, "too much to read for a dump");
  must(cudaMemcpyAsync(bounce, from, bytes, cudaMemcpyDefault, copies), "reading GPU memory");
  must(cudaStreamSynchronize(copies), "reading GPU memory");
  std::memcpy(to, bounce, bytes);
}

void GpuEngine::Impl::copy_queues() const {
  const OnGpu on(device);
  std::uint32_t end = nic::kMaxQps;
  while (end > 1 && sender.tables().qps[end - 1].qpn.value == 0) --end;
  must(
      cudaMemcpyAsync(queues, nic.queues, end * sizeof(gpu::Queue), cudaMemcpyDeviceToHost, copies),
      "asking the NIC's kernel");
  must(cudaStreamSynchronize(copies), "asking the NIC's kernel");
}

bool GpuEngine::Impl::ends_any() const {
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const nic::QpEntry& qp = sender.tables().qps[i];
    if (qp.qpn.value != 0 && qp.state == nic::QpState::kRts && queues[i].back.syndrome != 0) {
      return true;
    }
  }
  return false;
}

void GpuEngine::Impl::take_reports() {
  copy_queues();
  // What was told before an error may have been copied before it was written.
  if (ends_any()) copy_queues();
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const nic::QpEntry& qp = sender.tables().qps[i];
    if (qp.qpn.value == 0 || queues[i].front.made != qp.made_generation) continue;
    const gpu::BackState& back = queues[i].back;
    const Qpn peer = qp.remote_qpn;
    const bool ended = qp.state != nic::QpState::kError && back.syndrome != 0 &&
                       queues[i].front.generation == qp.ring_generation;
    sender.report(qp.qpn, progress_of(queues[i], qp));
    if (ended && nic::is_of_responder(back.reason)) receiver.refuse(peer, back.reason);
  }
}

// Whether the kernel has ended, within the deadline.
bool GpuEngine::Impl::ends() const {
  const auto deadline = std::chrono::steady_clock::now() + kAnswerDeadline;
  while (cudaStreamQuery(kernel) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void GpuEngine::Impl::stop() noexcept {
  const OnGpu on(device);
  if (served) {
    const auto none = [](void*, const void*, std::size_t) {
      throw Error(ENODEV, "the GPU engine that served this queue has ended");
    };
    sender.serve_elsewhere(none);
    receiver.serve_elsewhere(none);
  }
  bool ended = true;
  if (running) {
    try {
      set_epoch(gpu::kStopEpoch);
    } catch (const Error&) {
      // Then the context is lost, and the kernel with it.
    }
    ended = ends();
  }
  // A kernel that does not end keeps what it works with; to free it would wait for ever.
  if (ended) release();
}

void GpuEngine::Impl::release() noexcept {
  for (gpu::Mirror* m : nic.mirror) cudaFree(m);
  cudaFree(nic.epoch);
  cudaFreeHost(nic.seen);
  cudaFree(nic.queues);
  cudaFree(nic.feeds);
  cudaFree(nic.far_done);
  cudaFree(nic.ended);
  cudaFreeHost(staging);
  cudaFreeHost(staged_epoch);
  cudaFreeHost(queues);
  cudaFreeHost(bounce);
  if (copies != nullptr) cudaStreamDestroy(copies);
  if (kernel != nullptr) cudaStreamDestroy(kernel);
}

GpuEngine::GpuEngine(Core& sender, Core& receiver, const GpuEngineOptions& options)
    : impl_(std::make_unique<Impl>(sender, receiver, options)) {
  try {
    impl_->start();
  } catch (...) {
    impl_->stop();
    throw;
  }
}

GpuEngine::~GpuEngine() {
  impl_->stop();
}

void GpuEngine::call(const std::function<void()>& f) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->lost) throw Error(ETIMEDOUT, "the NIC's kernel has not answered an earlier call");
  impl_->take_reports();
  f();
  const std::string refused = impl_->refuse_faults();
  impl_->publish();
  if (!refused.empty()) throw Error(ENOTSUP, refused);
}

const gpu::Nic& GpuEngine::nic() const {
  return impl_->nic;
}

}  // namespace peal::engine
