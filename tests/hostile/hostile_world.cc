#include "tests/hostile/hostile_world.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "gateway/base/clock.h"

namespace outboard::test {
namespace {

// What the gateway may have grown by since before the first case, after all that were. It is what
// the flood figures allow (docs/measurements): the allocator keeps some of what was freed.
constexpr int64_t kGrowthMax = int64_t{64} << 20;
// The watches of its own ports and connections of the honest account come and go, and gRPC keeps a
// descriptor for each thread that polls. One that is lost by a flood is lost hundreds of times.
constexpr int kDescriptorsMore = 16;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMemoryTells = false;  // freed memory stays in the sanitizer's quarantine
#else
constexpr bool kMemoryTells = true;
#endif

}  // namespace

HostileWorld::HostileWorld() {
  cluster_.StartGateway("--price " + std::to_string(kPricePerHourUsd));
  worker_ = cluster_.StartWorker("--devices " + std::to_string(kDevices));
  mallory_key_ = std::string(MakeKey("mallory").text.Reveal());
  honest_ = std::make_unique<HonestAccount>(
      target(), std::string(MakeKey("an-honest-account").text.Reveal()));
  absl::Status begun;
  EXPECT_TRUE(Eventually([&] { return (begun = honest_->Begin()).ok(); })) << begun;
  // What the first session costs once: threads, pools of memory, compiled kernels.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(honest_->FreshStep().ok());
  resident_before_ = ResidentBytes();
  descriptors_before_ = Descriptors();
}

HostileWorld::~HostileWorld() = default;

HostileClient HostileWorld::ClientOf(const std::string& key, const std::string& from) {
  return HostileClient(ChannelFrom(target(), from), key, &replies_);
}

std::unique_ptr<RawHttp2> HostileWorld::Raw(const std::string& from) {
  return std::make_unique<RawHttp2>(target(), from);
}

std::vector<Header> HostileWorld::Authorized(const std::string& method, std::vector<Header> more) {
  more.emplace_back("authorization", "Bearer " + mallory_key_);
  return CallHeaders(method, std::move(more));
}

std::unique_ptr<gateway::Accounts> HostileWorld::accounts() {
  return gateway::Accounts::Open(gateway::AccountsPath(cluster_.data())).value();
}

gateway::NewApiKey HostileWorld::MakeKey(const std::string& tenant,
                                         const gateway::KeyRights& rights) {
  auto all = accounts();
  const auto id = all->EnsureTenant(tenant, gateway::WallNow()).value().id;
  return all->CreateKey(id, "k", gateway::WallNow(), rights).value();
}

void HostileWorld::CheckAfterCase() {
  const absl::Status step = honest_->Step(), fresh = honest_->FreshStep();
  EXPECT_TRUE(step.ok()) << step;
  EXPECT_TRUE(fresh.ok()) << fresh;
  const auto expected = [&] { return descriptors_before_ + held_connections + kDescriptorsMore; };
  EXPECT_TRUE(Eventually([&] { return Descriptors() <= expected(); }, 15))
      << Descriptors() << " descriptors; before " << descriptors_before_ << ", and "
      << held_connections << " that are held";
  if (!kMemoryTells) return;
  EXPECT_TRUE(Eventually([&] { return ResidentBytes() <= resident_before_ + kGrowthMax; }))
      << ResidentBytes() << " bytes; before " << resident_before_;
}

void HostileWorld::CheckAtEnd() {
  EXPECT_TRUE(honest_->End().ok());
  EXPECT_EQ(gateway().Stop(SIGINT), 0) << gateway().err();
  const absl::Status sound = cluster_.Books()->Verify().status();
  EXPECT_TRUE(sound.ok()) << sound;
}

int64_t HostileWorld::ResidentBytes() {
  std::ifstream file("/proc/" + std::to_string(gateway().pid()) + "/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int HostileWorld::Descriptors() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           "/proc/" + std::to_string(gateway().pid()) + "/fd", error))
    count += !entry.path().empty();
  return count;
}

double HostileWorld::CpuSeconds() {
  std::ifstream file("/proc/" + std::to_string(gateway().pid()) + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // to utime, the 14th field
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace outboard::test
