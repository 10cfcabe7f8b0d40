// The parts of a node's process 1 (worker/init), without being process 1.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/growing_pause.h"
#include "worker/init/dhcp_lease.h"
#include "worker/init/log_sender.h"
#include "worker/init/module_tables.h"
#include "worker/init/node_config.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_init.h"
#include "worker/init/node_log.h"
#include "worker/init/worker_keeper.h"

namespace outboard::worker {
namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');
const std::string kImage = "built=1764000000\nfingerprint=" + kDigest + "\ngateway=in.image:1\n";

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "node-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name) << text;
  }

 private:
  std::string path_;
};

uint32_t Half() { return 0x80000000; }

// ---- what it is told

TEST(NodeConfig, TheCommandLineChoosesTheGateway_TheImageWhomToBelieve) {
  const auto config = ParseNodeConfig(
      kImage,
      "quiet outboard.gateway=10.0.2.2:6668 outboard.claim=ob_claim_1 outboard.image=" + kDigest +
          " fingerprint=sha256:b outboard.fingerprint=sha256:b outboard.built=1\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->gateway, "10.0.2.2:6668");
  EXPECT_EQ(config->claim, "ob_claim_1");
  EXPECT_EQ(config->image, kDigest);
  EXPECT_EQ(config->fingerprint, kDigest);
  EXPECT_EQ(config->built_unix_s, 1764000000);
  EXPECT_EQ(ParseNodeConfig(kImage, "")->gateway, "in.image:1");
  EXPECT_EQ(config->joins_within_s, 0);
  EXPECT_EQ(ParseNodeConfig(kImage, "outboard.joins_within=60")->joins_within_s, 60);
  EXPECT_FALSE(config->leaves_tpm);
  EXPECT_TRUE(ParseNodeConfig(kImage, "outboard.tpm=none")->leaves_tpm);
  // A shell is a matter of the image's alone.
  EXPECT_FALSE(ParseNodeConfig(kImage, "debug=1 outboard.debug=1")->debug);
  EXPECT_TRUE(ParseNodeConfig(kImage + "debug=1\n", "")->debug);
}

TEST(NodeConfig, WhatIsMissingOrMakesNoSense_IsSaid) {
  const std::string long_claim(300, 'c');
  for (const auto& [image, line, word] : std::vector<std::array<std::string, 3>>{
           {"", "outboard.gateway=a:1", "built"},
           {"built=1\n", "outboard.gateway=a:1", "fingerprint"},
           {"built=1\nfingerprint=sha256:12\n", "outboard.gateway=a:1", "fingerprint"},
           {"built=1\nfingerprint=" + kDigest + "\n", "", "no gateway"},
           {kImage, "outboard.claim=" + long_claim, "outboard.claim"},
           {kImage, "outboard.claim=\x01", "outboard.claim"},
           {kImage, "outboard.joins_within=1", "outboard.joins_within"},
           {kImage, "outboard.joins_within=1m", "outboard.joins_within"},
           {kImage, "outboard.tpm=/dev/tpm1", "outboard.tpm"},
           {kImage, "outboard.image=md5:1", "outboard.image"}}) {
    const auto config = ParseNodeConfig(image, line);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << word;
    EXPECT_NE(config.status().message().find(word), absl::string_view::npos) << config.status();
  }
}

// ---- modules

TEST(ModuleTables, ADevice_BringsItsModuleAndThoseItNeedsFirst) {
  const ModuleTables tables(
      "# aliases\nalias virtio:d00000001v* virtio_net\nalias pci:v00001AF4d*sv*sd*bc*sc*i* "
      "virtio_pci\nalias pci:v00008086d0000100E* e1000\nbroken line\n",
      "kernel/net/virtio_net.ko: kernel/net/net-failover.ko kernel/virtio.ko kernel/ring.ko\n"
      "kernel/net/net-failover.ko: kernel/net/failover.ko\nkernel/net/failover.ko:\n"
      "kernel/virtio.ko: kernel/ring.ko\nkernel/ring.ko:\nkernel/virtio_pci.ko: kernel/virtio.ko "
      "kernel/ring.ko\nnothing\n");
  using Paths = std::vector<std::string>;
  EXPECT_EQ(tables.For({"pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00",
                        "virtio:d00000001v00001AF4", "acpi:PNP0A03:"}),
            (Paths{"kernel/ring.ko", "kernel/virtio.ko", "kernel/virtio_pci.ko",
                   "kernel/net/net-failover.ko", "kernel/net/virtio_net.ko"}));
  EXPECT_EQ(tables.For({"usb:v1"}), Paths{});
  EXPECT_EQ(tables.For({"pci:v00008086d0000100E"}), Paths{});  // named, and not in the image
}

TEST(RemoveModules, ThoseThatAreKept_StayAlone) {
  const TemporaryFolder folder;
  for (const char* const name : {"kernel/fs/a.ko", "kernel/fs/b.ko", "kernel/c.ko", "modules.dep"})
    folder.Write(name, "12345");
  EXPECT_EQ(RemoveModules(folder.path(), {"kernel/fs/b.ko"}), 10u);
  EXPECT_FALSE(std::filesystem::exists(folder / "kernel/fs/a.ko"));
  EXPECT_FALSE(std::filesystem::exists(folder / "kernel/c.ko"));
  EXPECT_TRUE(std::filesystem::exists(folder / "kernel/fs/b.ko"));
  EXPECT_TRUE(std::filesystem::exists(folder / "modules.dep"));
  EXPECT_EQ(RemoveModules(folder / "none", {}), 0u);
}

TEST(BytesKeptFree, AreWhatTheKernelKeepsWithoutHugePages) {
  constexpr uint64_t kMib = 1 << 20, kGib = 1 << 30;
  EXPECT_EQ(BytesKeptFree(kGib, 44 * kMib), 8 * kMib);
  EXPECT_EQ(BytesKeptFree(256 * kGib, 88 * kMib), 64 * kMib);
  EXPECT_EQ(BytesKeptFree(256 * kGib, 5 * kMib), 5 * kMib);  // never more than it keeps
  EXPECT_EQ(BytesKeptFree(kGib, 0), 0u);                     // it does not say
}

// ---- an address

constexpr MacAddress kMac{0x52, 0x54, 0, 0x12, 0x34, 0x56};

// An answer to the question in `packet`, with further options behind.
std::string AnswerTo(const std::string& packet, uint8_t type, const std::string& more = "",
                     uint32_t lease_s = 600) {
  std::string out(240, '\0');
  out[0] = 2;
  std::memcpy(out.data() + 4, packet.data() + 4, 4);    // transaction
  std::memcpy(out.data() + 16, "\x0a\x00\x02\x0f", 4);  // 10.0.2.15
  std::memcpy(out.data() + 28, packet.data() + 28, 6);
  std::memcpy(out.data() + 236, "\x63\x82\x53\x63", 4);
  out += std::string("\x35\x01", 2) + static_cast<char>(type);
  out += std::string("\x36\x04\x0a\x00\x02\x02", 6);
  out += std::string("\x33\x04", 2);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(lease_s >> shift);
  return out + more + '\xff';
}

uint8_t TypeOf(const std::string& packet) { return static_cast<uint8_t>(packet.at(242)); }

TEST(DhcpPacket, AnAnswer_IsTakenWithItsOptions) {
  const std::string asked = Encode({.transaction = 7, .mac = kMac});
  EXPECT_GE(asked.size(), 300u);
  const std::string options(
      "\x01\x04\xff\xff\xf0\x00\x03\x04\x0a\x00\x02\x02\x06\x08\x0a\x00\x02\x03"
      "\x08\x08\x08\x08\x1a\x02\x05\x78\x00\x00",
      28);
  const auto answer = DecodeDhcp(AnswerTo(asked, 5, options), 7, kMac);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->type, DhcpType::kAck);
  EXPECT_EQ(ToString(answer->address), "10.0.2.15");
  EXPECT_EQ(answer->prefix, 20);
  EXPECT_EQ(ToString(answer->router), "10.0.2.2");
  EXPECT_EQ(answer->dns.size(), 2u);
  EXPECT_EQ(answer->mtu, 1400);
  EXPECT_EQ(answer->lease_s, 600u);
}

TEST(DhcpPacket, WhatMakesNoSense_IsRefused) {
  const std::string asked = Encode({.transaction = 7, .mac = kMac});
  const std::string good = AnswerTo(asked, 5);
  EXPECT_TRUE(DecodeDhcp(good, 7, kMac).ok());
  EXPECT_FALSE(DecodeDhcp(good, 8, kMac).ok());                // another transaction
  EXPECT_FALSE(DecodeDhcp(good, 7, {1, 2, 3, 4, 5, 6}).ok());  // another machine
  EXPECT_FALSE(DecodeDhcp(asked, 7, kMac).ok());               // a question
  EXPECT_FALSE(DecodeDhcp(std::string(1600, 'x'), 7, kMac).ok());
  EXPECT_FALSE(DecodeDhcp(AnswerTo(asked, 5, std::string("\x01\x04\xff\x00\xff\x00", 6)), 7, kMac)
                   .ok());  // a netmask with a hole
  EXPECT_FALSE(DecodeDhcp(AnswerTo(asked, 5, std::string("\x03\x04\xe0\x00\x00\x01", 6)), 7, kMac)
                   .ok());  // a multicast router
  EXPECT_FALSE(DecodeDhcp(AnswerTo(asked, 9), 7, kMac).ok());
  // Of any length: an error or an answer, and never a byte beyond the end.
  for (size_t length = 0; length < good.size(); ++length)
    static_cast<void>(DecodeDhcp(good.substr(0, length), 7, kMac).ok());
}

TEST(DhcpLease, AsksUntilSomebodyOffers_ThenRenewsAtHalfTheLease) {
  DhcpLease lease(kMac, 0, Half);
  std::string sent = lease.Due(0).value();
  EXPECT_EQ(TypeOf(sent), 1);
  EXPECT_EQ(lease.Due(0.5), std::nullopt);
  double now = 0;
  for (int i = 0; i < 20; ++i) {  // nobody answers: the pauses grow to half a minute, for ever
    const double before = now;
    now = lease.NextAt();
    EXPECT_LE(now - before, 40);
    sent = lease.Due(now).value();
    EXPECT_EQ(TypeOf(sent), 1);
  }
  EXPECT_FALSE(lease.On(AnswerTo(sent, 2), now));
  sent = lease.Due(now).value();
  EXPECT_EQ(TypeOf(sent), 3);
  EXPECT_TRUE(lease.On(AnswerTo(sent, 5), now));
  ASSERT_TRUE(lease.lease().has_value());
  EXPECT_EQ(lease.NextAt(), now + 300);
  now = lease.NextAt();
  sent = lease.Due(now).value();
  EXPECT_EQ(TypeOf(sent), 3);
  EXPECT_EQ(sent.substr(12, 4), std::string("\x0a\x00\x02\x0f", 4));  // it has the address still
  EXPECT_TRUE(lease.On(AnswerTo(sent, 5), now));
  EXPECT_EQ(lease.NextAt(), now + 300);
}

TEST(DhcpLease, ALeaseThatNobodyRenews_IsLost_AndARefusalBeginsAnew) {
  DhcpLease lease(kMac, 0, Half);
  lease.On(AnswerTo(lease.Due(0).value(), 2), 0);
  ASSERT_TRUE(lease.On(AnswerTo(lease.Due(0).value(), 5), 0));
  std::string last;
  while (lease.lease().has_value()) last = lease.Due(lease.NextAt()).value_or(last);
  EXPECT_EQ(TypeOf(last), 1);
  double now = 700;
  lease.On(AnswerTo(last, 2), now);
  const std::string request = lease.Due(now).value();
  EXPECT_EQ(TypeOf(request), 3);
  EXPECT_FALSE(lease.On(AnswerTo(request, 6), now));
  EXPECT_EQ(TypeOf(lease.Due(now).value()), 1);
}

// ---- what it says of itself

TEST(NodeFacts, AreTheMachines) {
  const TemporaryFolder root;
  root.Write("sys/class/dmi/id/product_serial", "  S/N 12-34\n");
  root.Write("sys/class/dmi/id/product_uuid", "AAAA-BBBB\n");
  root.Write("sys/class/net/eth0/address", "52:54:00:12:34:56\n");
  root.Write("sys/class/net/eth0/device/vendor", "");
  root.Write("sys/class/net/lo/address", "00:00:00:00:00:00\n");
  root.Write("sys/bus/pci/devices/0/class", "0x030200\n");
  root.Write("sys/bus/pci/devices/0/vendor", "0x10de\n");
  root.Write("sys/bus/pci/devices/0/device", "0x2330\n");
  root.Write("sys/bus/pci/devices/1/class", "0x020000\n");
  root.Write("proc/meminfo", "MemTotal:        1024 kB\nMemFree: 1 kB\n");
  const proto::NodeFacts facts = ReadNodeFacts(root.path());
  EXPECT_EQ(facts.serial(), "S_N_12-34");
  EXPECT_EQ(facts.uuid(), "aaaa-bbbb");
  ASSERT_EQ(facts.mac_size(), 1);
  EXPECT_EQ(facts.mac(0), "52:54:00:12:34:56");
  ASSERT_EQ(facts.devices_size(), 1);
  EXPECT_EQ(facts.devices(0), "10de:2330");
  EXPECT_EQ(facts.memory_bytes(), 1u << 20);
}

TEST(NodeFacts, WithoutASerialNumber_ItGoesByWhatElseIsItsOwn) {
  const TemporaryFolder root;
  root.Write("sys/class/net/eth0/address", "52:54:00:12:34:56\n");
  root.Write("sys/class/net/eth0/device/vendor", "");
  EXPECT_EQ(ReadNodeFacts(root.path()).serial(), "mac-52-54-00-12-34-56");
  root.Write("sys/class/dmi/id/product_uuid", "AB\n");
  EXPECT_EQ(ReadNodeFacts(root.path()).serial(), "ab");
  root.Write("sys/class/dmi/id/product_serial", "To Be Filled By O.E.M.\n");
  root.Write("sys/class/dmi/id/board_serial", "..board 7\n");
  EXPECT_EQ(ReadNodeFacts(root.path()).serial(), "board_7");
  EXPECT_EQ(CleanSerial(std::string(100, 'x')).size(), 56u);
}

// ---- its log

TEST(NodeLog, LinesAreWhole_AndTheFileIsBounded) {
  const TemporaryFolder folder;
  NodeLog log(folder / "log", -1);
  log.Say("first\nsecond");
  log.Add("begin");
  log.Add(" end\n" + std::string(2500, 'x') + "\n");
  const std::string text = FileText(folder / "log");
  EXPECT_NE(text.find("] first second\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nbegin end\n"), std::string::npos);
  EXPECT_NE(text.find("\n" + std::string(1000, 'x') + "\n" + std::string(1000, 'x') + "\n"),
            std::string::npos);
  for (int i = 0; i < 1200; ++i) log.Add(std::string(999, 'y') + "\n");
  EXPECT_LE(FileText(folder / "log", 4 << 20).size(), kNodeLogFileBytesMax);
}

TEST(LogSender, SendsFromTheFirstLineOn_OnceEach_AlsoWhenStartedAgain) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::vector<std::string> got;
  bool fails = true;
  const auto send = [&](const std::vector<std::string>& lines) {
    std::lock_guard lock(mutex);
    if (std::exchange(fails, false)) return absl::UnavailableError("not yet");
    got.insert(got.end(), lines.begin(), lines.end());
    return absl::OkStatus();
  };
  NodeLog log(folder / "log", -1);
  for (int i = 0; i < 450; ++i) log.Add(std::to_string(i) + "\n");
  { LogSender sender(folder / "log", send); }  // its last try, after the one that failed
  log.Add("after\nhalf a");
  { LogSender sender(folder / "log", send); }
  ASSERT_EQ(got.size(), 451u);
  for (int i = 0; i < 450; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], std::to_string(i));
  EXPECT_EQ(got.back(), "after");
}

// ---- its worker

TEST(GrowingPause, DoublesUpToItsMost_AndBeginsAgain) {
  GrowingPause pause(1, 10, [] { return ~uint32_t{0}; });
  std::vector<double> all;
  for (int i = 0; i < 6; ++i) all.push_back(pause.Next());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_NEAR(all[i], std::min(double(1 << i), 10.0), 1e-6) << i;
  pause.Reset();
  EXPECT_NEAR(pause.Next(), 1, 1e-6);
  GrowingPause least(8, 10, [] { return 0u; });
  EXPECT_EQ(least.Next(), 4);  // jitter: half of it at least
}

class Keeping : public ::testing::Test {
 protected:
  // Waits for the child that runs, as process 1 does.
  void Reap(WorkerKeeper& keeper, double now) {
    int status = 0;
    const pid_t pid = waitpid(keeper.pid(), &status, 0);
    ASSERT_GT(pid, 0);
    keeper.OnEnded(pid, status, now);
  }
  const TemporaryFolder folder_;
  NodeLog log_{folder_ / "log", -1};
};

TEST_F(Keeping, AWorkerThatEnds_IsStartedAgainAfterGrowingPauses) {
  WorkerKeeper keeper(
      {.command = {"/bin/sh", "-c", "echo said $WORD; exit 3"}, .environment = {"WORD=so"}}, &log_,
      Half);
  double now = 100, last_pause = 0;
  for (int start = 0; start < 5; ++start) {
    EXPECT_GT(keeper.Keep(now), now + 1000);
    ASSERT_GT(keeper.pid(), 0);
    Reap(keeper, now);
    const double next = keeper.Keep(now);
    EXPECT_GT(next - now, last_pause);
    EXPECT_EQ(keeper.pid(), -1);
    last_pause = next - now;
    now = next;
  }
  EXPECT_NEAR(last_pause, 12, 1e-6);  // 1, 2, 4, 8, 16 s, each less a quarter here
  // One that ran for a minute did work.
  keeper.Keep(now);
  Reap(keeper, now + 61);
  EXPECT_NEAR(keeper.Keep(now + 61) - (now + 61), 0.75, 1e-6);
  const std::string text = FileText(folder_ / "log");
  EXPECT_NE(text.find("said so\n"), std::string::npos) << text;
  EXPECT_NE(text.find("the worker exited with 3; again in 0.8 s"), std::string::npos) << text;
}

TEST_F(Keeping, OnceStopped_NothingIsStarted) {
  WorkerKeeper keeper({.command = {"/bin/sh", "-c", "exec sleep 1000"}, .environment = {}}, &log_,
                      Half);
  keeper.Keep(0);
  ASSERT_GT(keeper.pid(), 0);
  keeper.OnEnded(keeper.pid() + 1, 0, 0);  // another child's end is none of its
  EXPECT_GT(keeper.pid(), 0);
  keeper.Stop();
  Reap(keeper, 1);
  keeper.Keep(1000);
  EXPECT_EQ(keeper.pid(), -1);
  EXPECT_NE(FileText(folder_ / "log").find("the worker was ended by signal 15"), std::string::npos);
}

TEST_F(Keeping, AWorkerThatWantsTheMachineToStartAgain_IsNotStartedAgain) {
  WorkerKeeper keeper({.command = {"/bin/sh", "-c", "exit $CODE"},
                       .environment = {"CODE=" + std::to_string(kExitRestartMachine)}},
                      &log_, Half);
  keeper.Keep(0);
  EXPECT_FALSE(keeper.wants_restart());
  Reap(keeper, 1);
  EXPECT_TRUE(keeper.wants_restart());
  keeper.Keep(1000);
  EXPECT_EQ(keeper.pid(), -1);
}

TEST_F(Keeping, AWorkerThatWantsToBeStartedAgain_IsAtOnce) {
  WorkerKeeper keeper({.command = {"/bin/sh", "-c", "exit $CODE"},
                       .environment = {"CODE=" + std::to_string(kExitRestartWorker)}},
                      &log_, Half);
  keeper.Keep(0);
  Reap(keeper, 1);
  EXPECT_FALSE(keeper.wants_restart());
  keeper.Keep(1);
  EXPECT_GT(keeper.pid(), 0);
}

TEST_F(Keeping, AProgramThatIsNotThere_IsTriedAgain) {
  WorkerKeeper keeper({.command = {"/no/such/program"}, .environment = {}}, &log_, Half);
  EXPECT_NEAR(keeper.Keep(0), 0.75, 1e-6);
  EXPECT_NEAR(keeper.Keep(1), 1 + 1.5, 1e-6);
  EXPECT_NE(FileText(folder_ / "log").find("cannot start /no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace outboard::worker
