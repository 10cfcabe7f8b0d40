// A gateway whose disk is full: what was there stays, what runs goes on, what is new is refused,
// and the books are written later.
#include <gtest/gtest.h>

#include "client/session/session.h"
#include "gateway/server/ledger_writer.h"
#include "tests/support/documented.h"
#include "tests/support/gateway_test.h"
#include "tests/support/small_disk.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using absl::StatusCode;

bool own_mounts = false;

class FullDiskTest : public test::GatewayTest {
 protected:
  void SetUp() override {
    if (!own_mounts || !disk_.mounted()) GTEST_SKIP() << "no disks of one's own here";
  }
  void StartOnDisk() {
    gateway::GatewayOptions options;
    options.no_auth = true;
    options.data_folder = disk_.path() + "/data";
    StartGateway(options);
    StartWorker(2);
  }
  std::string blobs() const { return disk_.path() + "/data/blobs"; }

  test::SmallDisk disk_{4096};
};

const int64_t kDims[] = {16};

// The fake worker's copy of what was put.
absl::Status Echo(Session& session) {
  const uint64_t in = session.NewHandle();
  const std::string bytes(16, 'e');
  if (absl::Status status = session.Put(in, DType::kBool, kDims, bytes); !status.ok())
    return status;
  auto seq = session.Fetch(in);
  if (!seq.ok()) return seq.status();
  auto value = session.Await(*seq, 0);
  if (!value.ok()) return value.status();
  return value->bytes == bytes ? absl::OkStatus() : absl::DataLossError("other bytes");
}

TEST_F(FullDiskTest, BlobsAreRefusedAndNothingHalfWrittenStays) {
  StartOnDisk();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  std::string bytes(5 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  const int64_t dims[] = {static_cast<int64_t>(bytes.size())};
  const absl::Status status = session->Put(session->NewHandle(), DType::kBool, dims, bytes);
  test::ExpectAsDocumented("The gateway's disk is full: a large Put", status);
  EXPECT_TRUE(test::Eventually([&] { return test::CountFiles(blobs() + "/tmp") == 0; }));
  // The last chunk fits and may have come whole before the other failed; the next try need not send
  // it again. A blob there is not.
  EXPECT_LE(test::CountFiles(blobs()), 1);
  EXPECT_EQ(test::CountFiles(blobs() + "/1/roots"), 0);
  EXPECT_TRUE(Echo(*session).ok());  // small ones need no disk
  // A smaller blob still fits: the room was given back.
  bytes.resize(3 << 19);
  const int64_t fewer[] = {static_cast<int64_t>(bytes.size())};
  EXPECT_TRUE(session->Put(session->NewHandle(), DType::kBool, fewer, bytes).ok());
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(FullDiskTest, NoNewSessionsAndLaterTheWholeBill) {
  StartOnDisk();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  disk_.Fill();
  // The gateway knows when it has something to write: of this attempt, or of the meter.
  absl::Status refused;
  ASSERT_TRUE(test::Eventually([&] {
    auto another = Session::Connect(Options());
    if (another.ok()) return false;
    refused = another.status();
    return true;
  }));
  test::ExpectAsDocumented("The gateway's disk is full: a new session", refused);
  EXPECT_TRUE(Echo(*session).ok());
  ASSERT_TRUE(test::Eventually(
      [&] { return Echo(*session).ok() && session->stats().seconds_billed >= 2; }));
  ASSERT_TRUE(session->Close().ok());  // does not wait for the disk
  const session::Stats stats = session->stats();
  disk_.MakeRoom();
  std::unique_ptr<Session> next;
  ASSERT_TRUE(test::Eventually([&] {
    auto again = Session::Connect(Options());
    if (again.ok()) next = *std::move(again);
    return next != nullptr;
  }));
  EXPECT_TRUE(Echo(*next).ok());
  auto ledger = gateway::Ledger::Open(gateway::AccountsPath(disk_.path() + "/data")).value();
  EXPECT_TRUE(test::Eventually([&] {
    auto usage = ledger->UsageOfAll();
    return usage.ok() && static_cast<double>(usage->device_ms) >= 1e3 * stats.seconds_billed - 0.5;
  }));
  EXPECT_GT(stats.seconds_billed, 0.0);
  EXPECT_TRUE(ledger->Verify().ok());
}

}  // namespace
}  // namespace outboard

int main(int argc, char** argv) {
  outboard::own_mounts = outboard::test::EnterOwnMounts();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
