// What a client tells of its session when it opens it again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/session/core/session_core.h"
#include "wire/limits.h"
#include "wire/version.h"

namespace outboard::session {
namespace {

// A gateway takes no more of them, however small.
TEST(SessionCoreOpen, HasAThousandKernelUses) {
  SessionCore core;
  core.Open(1);
  proto::ServerFrame opened, done;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened()->set_resume_token(std::string(16, 't'));
  opened.mutable_items(0)->mutable_opened()->set_protocol(wire::kProtocolVersion);
  opened.mutable_items(0)->mutable_opened()->set_recoverable(true);
  core.OnFrame(opened);
  done.set_epoch(1);
  done.add_items();
  for (size_t i = 0; i <= wire::kOpenKernelUsesMax; ++i) {
    proto::KernelUse& use = *done.mutable_items(0)->mutable_done()->add_kernel_uses();
    use.set_seq(1);
    use.set_kernel(std::to_string(i));
  }
  core.OnFrame(done);
  core.TakeFrames();
  core.OnLinkLost();
  core.Resume();
  const auto frames = core.TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].items(0).open().kernel_uses_size(), 1000);
}

// Its kernels may add in another order there.
TEST(SessionCoreOpen, ASessionOnAnotherKindOfDevice_IsToldSo) {
  SessionCore core;
  core.Open(1);
  const auto notices_on = [&](uint64_t epoch, const char* hardware_class) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    proto::Opened& opened = *frame.add_items()->mutable_opened();
    opened.set_resume_token(std::string(16, 't'));
    opened.set_protocol(wire::kProtocolVersion);
    opened.mutable_device()->set_hardware_class(hardware_class);
    core.TakeFrames();
    core.OnFrame(frame);
    core.OnLinkLost();
    core.Resume();
    return core.TakeNotices();
  };
  EXPECT_TRUE(notices_on(1, "cuda; sm_90a H100").empty());
  EXPECT_TRUE(notices_on(2, "cuda; sm_90a H100").empty());
  const std::vector<std::string> told = notices_on(3, "cuda; sm_80 A100\n");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("results may differ in their last bits (cuda; sm_80 A100?, before: "
                         "cuda; sm_90a H100)"),
            std::string::npos)
      << told[0];
}

}  // namespace
}  // namespace outboard::session
