// A client that asks for much and reads nothing: what waits for it is bounded in the gateway,
// others go on, and it has all of it when it reads again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::FaultProxy;
using test::Way;

constexpr int kValues = 60;
constexpr size_t kValueBytes = size_t{4} << 20;

int64_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(SlowReader, CostsTheGatewayLittleAndLosesNothing) {
  test::Cluster cluster;
  cluster.StartUp(2);
  FaultProxy proxy(cluster.target());
  session::SessionOptions options = cluster.Options();
  options.target = proxy.address();
  auto connected = Session::Connect(options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  Session& slow = **connected;
  auto other = cluster.Connect();
  ASSERT_NE(other, nullptr);

  std::string bytes(kValueBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 9);
  const int64_t dims[] = {static_cast<int64_t>(kValueBytes)};
  const uint64_t handle = slow.NewHandle();
  ASSERT_TRUE(slow.Put(handle, DType::kU8, dims, bytes).ok());
  ASSERT_TRUE(slow.Sync().ok());
  ASSERT_TRUE(test::Step(*other).ok());

  const int gateway = cluster.gateway().pid();
  const int64_t before = ResidentBytes(gateway);
  proxy.Stall(Way::kDown);
  // Beside us, since a session that hears nothing asks for no more than its window.
  std::vector<uint64_t> seqs;
  std::thread asker([&] {
    for (int i = 0; i < kValues; ++i) {
      auto seq = slow.Fetch(handle);
      ASSERT_TRUE(seq.ok()) << seq.status();
      seqs.push_back(*seq);
    }
  });
  int64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(test::Step(*other).ok());
    most = std::max(most, ResidentBytes(gateway) - before);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(most, int64_t{96} << 20) << "of " << kValues * kValueBytes << " bytes asked for";

  proxy.Resume(Way::kDown);
  asker.join();
  ASSERT_EQ(seqs.size(), static_cast<size_t>(kValues));
  for (const uint64_t seq : seqs) {
    auto value = slow.Await(seq, 0);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(value->bytes == bytes);
  }
}

}  // namespace
}  // namespace outboard
