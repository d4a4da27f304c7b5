#include "gpu/producers.hpp"

#include <algorithm>
#include <cerrno>

#include "peal/host/error.hpp"

namespace peal::test {

Launcher::Launcher() : launcher_(0, kProducersMax, kProducersMax * kWindowMax) {
  queues_ = cuda::pinned<QueueHandle>(kProducersMax);
}

Launcher::~Launcher() {
  cudaFreeHost(queues_);
}

std::vector<Outcome> Launcher::run(const std::vector<QueueHandle>& queues, const Job& job,
                                   const engine::gpu::Nic* nic) {
  if (queues.size() > kProducersMax) throw Error(EINVAL, "there is no room for so many queues");
  std::copy(queues.begin(), queues.end(), queues_);
  ladder::gpu::ProduceWork work;
  work.queues = queues_;
  work.qps = job.queues;
  work.producers = job.producers;
  work.window = job.producers * job.window;
  work.batch = job.batch;
  work.submit = job.submit;
  work.sharing = job.sharing;
  work.exec = job.exec;
  work.puts = job.puts;
  work.bytes = job.bytes;
  work.stride_bytes = job.bytes;
  work.source = job.source;
  work.lkey = job.lkey;
  work.destination = job.target;
  work.rkey = job.rkey;
  work.timeout_ns = job.timeout_ns;
  if (job.signals) work.signal = job.signal;
  work.sink = job.sink;
  std::vector<Outcome> outcomes;
  for (const ladder::gpu::Produced& p : launcher_.run(work, nic, [] {})) {
    outcomes.push_back({p.status, p.puts, p.completed_puts, p.start_ns, p.end_ns});
  }
  return outcomes;
}

}  // namespace peal::test
