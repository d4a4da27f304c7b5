#include "ladder/gpu/gpu_producers.hpp"

namespace peal::ladder::gpu {

std::vector<ProducerResult> GpuProducers::run(const SegmentWork& work,
                                              const std::function<void()>& watch) {
  const SlotLayout layout = work.plan.layout();
  ProduceWork w;
  w.queues = work.device_queues;
  w.qps = static_cast<std::uint32_t>(work.queues.size());
  w.producers = work.plan.producers;
  w.window = work.window;
  w.batch = work.batch;
  w.submit = work.submit;
  w.sharing = work.sharing;
  w.exec = exec_;
  w.puts = work.plan.puts_per_producer;
  w.bytes = work.plan.payload_bytes;
  w.stride_bytes = layout.stride_bytes;
  w.source = work.source + layout.align_bytes;
  w.lkey = work.lkey;
  w.destination = work.destination + layout.align_bytes;
  w.rkey = work.rkey;
  w.timeout_ns = work.timeout_ns;

  std::vector<ProducerResult> results;
  for (const Produced& p : launcher_.run(w, nic_, watch)) {
    ProducerResult r;
    r.status = p.status;
    r.acknowledged = p.completed_puts;
    r.wqes = p.wqes;
    r.reservations = p.reservations;
    r.chunks = p.wqes - p.puts;
    r.noops = work.plan.payload_bytes == 0 ? p.puts : 0;
    r.start_ns = p.start_ns;
    r.end_ns = p.end_ns;
    if (work.batch == 1) {
      const auto number = static_cast<std::uint32_t>(results.size());
      r.latencies.add(launcher_.latency_counts(number), p.latency_max_ns);
    }
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace peal::ladder::gpu
