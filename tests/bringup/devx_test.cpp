#include "bringup/devx.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "host/host_fixture.hpp"
#include "peal/host/software.hpp"

namespace peal::bringup {
namespace {

// A device that refuses one call, and counts how often it is open.
class Refusing : public test::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;

  ibv_device** get_device_list(int* count) override {
    if (!refuse_list) return ForwardingVerbs::get_device_list(count);
    errno = ENOSYS;
    return nullptr;
  }
  ibv_context* open_device(ibv_device* device) override {
    if (refuse_open) {
      errno = EACCES;
      return nullptr;
    }
    ++open;
    return ForwardingVerbs::open_device(device);
  }
  int close_device(ibv_context* context) override {
    --open;
    return ForwardingVerbs::close_device(context);
  }
  int devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes, void* out,
                       std::size_t out_bytes) override {
    if (refuse_command) return EOPNOTSUPP;
    return ForwardingVerbs::devx_general_cmd(context, in, in_bytes, out, out_bytes);
  }

  bool refuse_list = false;
  bool refuse_open = false;
  bool refuse_command = false;
  int open = 0;
};

TEST(AskDevx, TellsWhatWentWrongAndLeavesNothingOpen) {
  const Provider provider = SoftwareFabric::create().provider(0);
  Refusing verbs(provider.verbs);
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  ASSERT_EQ(count, 1);
  const std::string name = verbs.get_device_name(list[0]);
  verbs.free_device_list(list);

  const DevxAnswer works = ask_devx(verbs, name);
  EXPECT_TRUE(works.works) << works.text;
  EXPECT_EQ(works.text, "opened; send queues of up to 2^15 slots of 64 bytes");
  const auto expect_refusal = [&](const std::string& device, const std::string& text) {
    const DevxAnswer answer = ask_devx(verbs, device);
    EXPECT_FALSE(answer.works);
    EXPECT_NE(answer.text.find(text), std::string::npos) << answer.text;
  };
  expect_refusal("mlx5_99", std::strerror(ENODEV));
  verbs.refuse_command = true;
  expect_refusal(name, "QUERY_HCA_CAP: " + std::string(std::strerror(EOPNOTSUPP)));
  verbs.refuse_open = true;
  expect_refusal(name, std::strerror(EACCES));
  verbs.refuse_list = true;
  expect_refusal(name, std::strerror(ENOSYS));
  EXPECT_EQ(verbs.open, 0);
}

}  // namespace
}  // namespace peal::bringup
