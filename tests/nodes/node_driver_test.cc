// A machine that booted over the network and a vendor's driver: it joins and serves first, fetches
// the driver beside that, and its worker then starts again with the GPU; where there is none after
// all, with its CPUs, and one line says so. The GPU is that of tests/gpu/driver.
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gateway/nodes/driver_rows.h"
#include "gateway/server/gateway.h"
#include "runtime/devices.h"
#include "tests/cli/boot_world.h"
#include "tests/nodes/silent_server.h"
#include "tests/nodes/node_world.h"
#include "tests/support/paths.h"
#include "worker/init/node_init.h"

namespace outboard::test {
namespace {

std::string ThisKernel() {
  utsname name{};
  uname(&name);
  return name.release;
}

class NodeDriverTest : public NodeTest {
 protected:
  // What is in a driver's file, in `folder`.
  static void WriteDriver(const std::string& folder, int gpus, const std::string& faults = "") {
    std::filesystem::create_directories(folder + "/lib");
    std::ofstream(folder + "/kernel-release") << ThisKernel() << "\n";
    std::filesystem::copy_file(test::kFakeCuda, folder + "/lib/libcuda.so.1");
    std::ofstream(folder + "/lib/libcuda.so.1.env")
        << "OUTBOARD_FAKE_CUDA_DEVICES=" << gpus << "\nOUTBOARD_FAKE_CUDA_MIB=64\n"
        << (faults.empty() ? "" : "OUTBOARD_FAKE_CUDA_FAULTS=" + faults + "\n");
  }
  // As an earlier start of the machine's worker has left it.
  void WriteLoaded(const std::string& node, int gpus, const std::string& faults = "") {
    WriteDriver(cluster_.folder() / (node + "/driver"), gpus, faults);
    std::ofstream(cluster_.folder() / (node + "/driver-loaded")) << "sha256:...\n";
  }
  void ExpectServes() {
    auto session = Session::Connect(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    const absl::Status step = Step(**session);
    EXPECT_TRUE(step.ok()) << step;
    EXPECT_TRUE((*session)->Close().ok());
  }
  static size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }
  const std::vector<std::string> here_ = {"OUTBOARD_DEVICE", "OUTBOARD_CUDA_DRIVER",
                                          "CUDA_VISIBLE_DEVICES", "OUTBOARD_NODE_DRIVER"};
};

// The boot server takes the machine's connection, and sends nothing: for as long as a slow link
// takes for a driver of a GiB, say.
TEST_F(NodeDriverTest, ADriverThatTakesLong_HoldsUpNobody) {
  StartGateway();
  const SilentServer boot;
  const auto rows = gateway::DriverRows::Open(gateway::AccountsPath(cluster_.data()));
  ASSERT_TRUE(rows.ok()) << rows.status();
  const absl::Status added = (*rows)->Add({.digest = "sha256:" + std::string(64, 'a'),
                                           .kernel = ThisKernel(),
                                           .bytes = 1 << 30,
                                           .added = {}});
  ASSERT_TRUE(added.ok()) << added;
  auto environment = here_;
  environment.push_back("OUTBOARD_NODE_BOOT=" + boot.address());
  const auto worker = cluster_.Start(WorkerArgs("s-1", Claim("s-1")), environment);
  EXPECT_TRUE(std::filesystem::exists(cluster_.folder() / "node-s-1/joined"));
  ExpectServes();
  EXPECT_TRUE(Eventually([&] { return boot.asked() > 0; }));
  EXPECT_EQ(Count(worker->err(), "event=node_driver"), 0u) << worker->err();
  // Sessions have what is left beside the driver, which is kept in memory.
  const int64_t shared = runtime::DefaultMemoryBytesMax() - (int64_t{3} << 28);
  EXPECT_NE(worker->err().find("memory_bytes_max=" + std::to_string(shared)), std::string::npos)
      << worker->err();
  // It ends at once all the same, and the next start still knows what to fetch.
  EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
  const int before = boot.asked();
  const auto again = cluster_.Start(WorkerArgs("s-1", ""), environment);
  EXPECT_TRUE(Eventually([&] { return boot.asked() > before; }));
  EXPECT_EQ(again->Stop(SIGINT), 0) << again->err();
}

// Nothing is kept for a driver that does not come: the answer that the boot server has no such file
// is final, and so is that the machine knows no boot server.
TEST_F(NodeDriverTest, ADriverThatCannotCome_LeavesItsMemoryToSessions) {
  StartGateway();
  const std::string data = " --data " + cluster_.data();
  cli::MakeImage(cluster_.folder() / "image", ThisKernel(), ThisKernel());
  const Ended image = Outboard("image add " + cluster_.folder() / "image" + data);
  ASSERT_EQ(image.code, 0) << image.err;
  const auto rows = gateway::DriverRows::Open(gateway::AccountsPath(cluster_.data()));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_TRUE((*rows)->Add({.digest = "sha256:" + std::string(64, 'a'),
                            .kernel = ThisKernel(),
                            .bytes = 1 << 30,
                            .added = {}})
                  .ok());
  const std::string all =
      "memory_bytes_max=" + std::to_string(runtime::DefaultMemoryBytesMax());
  const auto boot = cluster_.Start("boot --listen 127.0.0.1:0" + data);
  std::string address = cluster_.last_address();  // http://HOST:PORT/boot.ipxe
  auto environment = here_;
  environment.push_back("OUTBOARD_NODE_BOOT=" + address.substr(7, address.rfind('/') - 7));
  {
    const auto worker = cluster_.Start(WorkerArgs("s-1", Claim("s-1")), environment);
    EXPECT_TRUE(Eventually([&] {
      return Count(cluster_.gateway().err(), "event=worker_joined") == 2;
    })) << worker->err();
    EXPECT_NE(worker->err().find("answers 404"), std::string::npos) << worker->err();
    ExpectServes();
    EXPECT_NE(worker->err().find(all), std::string::npos) << worker->err();
    EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
  }
  const auto worker = cluster_.Start(WorkerArgs("s-2", Claim("s-2")), here_);
  ExpectServes();
  EXPECT_NE(worker->err().find(all), std::string::npos) << worker->err();
  EXPECT_NE(worker->err().find("no outboard.boot="), std::string::npos) << worker->err();
  EXPECT_EQ(Count(cluster_.gateway().err(), "event=worker_joined"), 3u) << "at once";
}

TEST_F(NodeDriverTest, ADriverWithItsLibrary_IsFetchedAndMounted_AndTheWorkerStartsAgainWithIt) {
  // As process 1 does: in a mount namespace, so that nothing stays mounted.
  const std::string packed = cluster_.folder() / "driver/driver.squashfs";
  WriteDriver(cluster_.folder() / "from", 1);
  std::filesystem::create_directories(cluster_.folder() / "driver");
  const auto tried = [](const std::string& line) {
    return RunToEnd({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; " + line}).code == 0;
  };
  if (!tried("mksquashfs " + cluster_.folder() / "from" + " " + packed + " -noappend -quiet"))
    GTEST_SKIP() << "there is no mksquashfs (scripts/setup --image)";
  std::filesystem::create_directories(cluster_.folder() / "mounted");
  if (!tried("unshare --mount mount -t squashfs -o loop,ro " + packed + " " +
             cluster_.folder() / "mounted"))
    GTEST_SKIP() << "no file system is mounted for this user here";
  StartGateway();
  const std::string data = " --data " + cluster_.data();
  cli::MakeImage(cluster_.folder() / "image", ThisKernel(), ThisKernel());
  const Ended image = Outboard("image add " + cluster_.folder() / "image" + data);
  ASSERT_EQ(image.code, 0) << image.err;
  std::ofstream(cluster_.folder() / "driver/kernel-release") << ThisKernel() << "\n";
  {
    std::ofstream sums(cluster_.folder() / "driver/SHA256SUMS");
    for (const std::string name : {"driver.squashfs", "kernel-release"})
      sums << cli::Sha256Of(cluster_.folder() / "driver/" + name) << "  " << name << "\n";
  }
  const Ended driver = Outboard("image add --driver " + cluster_.folder() / "driver" + data);
  ASSERT_EQ(driver.code, 0) << driver.err;
  const auto boot = cluster_.Start("boot --listen 127.0.0.1:0" + data);
  std::string address = cluster_.last_address();  // http://HOST:PORT/boot.ipxe
  address = address.substr(7, address.rfind('/') - 7);
  const std::string worker = std::string(test::kOutboardProgram) + " " +
                             WorkerArgs("s-1", Claim("s-1")) + " --no-idle-search --shared-anyway";
  auto environment = here_;
  environment.push_back("OUTBOARD_NODE_BOOT=" + address);
  Process process({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                   worker + "; test $? = " + std::to_string(worker::kExitRestartWorker) +
                       " && exec " + worker},
                  environment);
  EXPECT_TRUE(Eventually([&] {
    return process.err().find("event=gpu_found") != std::string::npos;
  })) << process.err();
  EXPECT_EQ(Count(cluster_.gateway().err(), "event=worker_joined"), 1u) << "it served its CPUs";
  EXPECT_EQ(Count(process.err(), "event=node_driver"), 1u) << process.err();
  EXPECT_NE(process.err().find("device=cuda count=1"), std::string::npos) << process.err();
  EXPECT_EQ(Count(cluster_.gateway().err(), "event=node_enrolled"), 1u);
  // It would take its join test now, which is long on this GPU; sessions of a worker that has one
  // are tests/e2e's.
}

TEST_F(NodeDriverTest, ADriverWithoutADevice_LeavesTheCpus_AndOneLine) {
  StartGateway();
  const std::string args = WorkerArgs("s-1", Claim("s-1")) + " --no-idle-search";
  WriteLoaded("node-s-1", 0);
  const auto worker = cluster_.Start(args, here_);
  EXPECT_EQ(Count(worker->err(), "event=device_chosen"), 1u) << worker->err();
  EXPECT_NE(worker->err().find("has no device"), std::string::npos) << worker->err();
  EXPECT_NE(worker->err().find("effect=\"this worker serves its processor\""), std::string::npos)
      << worker->err();
  ExpectServes();
}

// A price file that has classes for processors alone, say.
TEST_F(NodeDriverTest, GpusThatTheGatewayRefuses_AreLeft_AndTheCpusServe) {
  const std::string prices = cluster_.folder() / "prices.json";
  std::ofstream(prices) << "{\"classes\": [{\"name\": \"small\", \"hardware\": [\"x86-64*\"], "
                           "\"usd_per_hour\": {\"run\": 0.1}}]}\n";
  StartGateway("--prices " + prices);
  const std::string args = WorkerArgs("s-1", Claim("s-1")) + " --no-idle-search";
  WriteLoaded("node-s-1", 1);
  const Ended refused = Outboard(args, here_);
  EXPECT_EQ(refused.code, worker::kExitRestartWorker) << refused.err;
  EXPECT_NE(refused.err.find("is of no class"), std::string::npos) << refused.err;
  const auto worker = cluster_.Start(args, here_);
  EXPECT_EQ(Count(worker->err(), "effect=\"this machine serves with its CPUs\""), 1u)
      << worker->err();
  ExpectServes();
}

// A GPU that is broken takes nobody's work, and does not keep the machine's CPUs from it.
TEST_F(NodeDriverTest, AGpuThatFailsItsJoinTest_IsLeft_AndTheCpusServe) {
  StartGateway();
  const std::string args = WorkerArgs("s-1", Claim("s-1")) + " --no-idle-search";
  WriteLoaded("node-s-1", 1, "alloc:1");
  const Ended failed = Outboard(args, here_);
  EXPECT_EQ(failed.code, worker::kExitRestartWorker) << failed.err;
  EXPECT_NE(failed.err.find("the join test"), std::string::npos) << failed.err;
  const auto worker = cluster_.Start(args, here_);
  EXPECT_EQ(Count(worker->err(), "the join test"), 1u) << worker->err();
  EXPECT_EQ(Count(worker->err(), "effect=\"this machine serves with its CPUs\""), 1u)
      << worker->err();
  ExpectServes();
}

// Its worker was killed between the mount and the modules: what is there is not believed.
TEST_F(NodeDriverTest, ADriverThatWasMountedOnly_IsNotUsed) {
  StartGateway();
  const std::string args = WorkerArgs("s-1", Claim("s-1")) + " --no-idle-search";
  WriteDriver(cluster_.folder() / "node-s-1/driver", 1);
  const auto worker = cluster_.Start(args, here_);
  EXPECT_EQ(Count(worker->err(), "event=device_chosen"), 0u) << worker->err();
  ExpectServes();
}

}  // namespace
}  // namespace outboard::test
