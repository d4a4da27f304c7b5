#include "host/uar.hpp"

#include <cerrno>
#include <cstddef>
#include <string>

#include "host/log.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::host {
namespace {

// Flags of mlx5dv_devx_alloc_uar. The non-cached type is right for one 8-byte store. The other one
// is write-combining, whose buffer the CPU's doorbell empties (MO-2).
constexpr std::uint32_t kUarNonCached = 1;
constexpr std::uint32_t kUarBlueFlame = 0;
constexpr std::uint32_t kMaxUarPage = 0xffffff;

}  // namespace

std::shared_ptr<Uar> Uar::allocate(Context::Impl& context) {
  mlx5dv_devx_uar* uar = context.verbs().devx_alloc_uar(context.device, kUarNonCached);
  if (uar == nullptr) {
    uar = context.verbs().devx_alloc_uar(context.device, kUarBlueFlame);
    if (uar != nullptr) {
      log(LogLevel::kWarning, context.name,
          " gave no non-cached UAR page, but a write-combining one");
    }
  }
  if (uar == nullptr) {
    throw system_error(errno, "allocating a UAR page of " + context.name +
                                  ", non-cached or write-combining (where queue pairs have used "
                                  "them up, the NIC's BAR is to be made larger: PF_LOG_BAR_SIZE of "
                                  "mlxconfig)");
  }
  if (uar->page_id <= kMaxUarPage) return std::shared_ptr<Uar>(new Uar(context, uar));
  const std::string page = std::to_string(uar->page_id);
  context.verbs().devx_free_uar(uar);
  throw Error(EOVERFLOW, "UAR page " + page + " of " + context.name +
                             " has a number of more than 24 bits, which no command can name");
}

Uar::~Uar() {
  if (mapped_ != nullptr) context_.memory().unmap_uar(mapped_);
  context_.verbs().devx_free_uar(uar_);
}

int Uar::map(bool has_record) {
  mapped_ = context_.memory().map_uar(cpu_register(has_record));
  return mapped_ == nullptr ? errno : 0;
}

std::uint64_t* Uar::cpu_register(bool has_record) const {
  void* at = has_record
                 ? uar_->reg_addr
                 : static_cast<std::byte*>(uar_->base_addr) + mlx5::kUarRecordlessDoorbellOffset;
  return static_cast<std::uint64_t*>(at);
}

}  // namespace peal::host
