#include "worker/kernels/account_kernels.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "worker/tuning/tuner.h"
#include "worker/tuning/tuning_key.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

// Accounts that may get a turn of the search; each costs a query of its file when the worker idles.
constexpr size_t kRecentAccountsMax = 64;
constexpr char kAccountsFolder[] = "accounts";
// Two gateways of one machine differ in it; it is too short to guess a secret from.
constexpr size_t kFleetHashBytes = 4;
// So many accounts may have as much as one may, unless the operator says otherwise.
constexpr int64_t kFullAccounts = 8;
// With less, a file of measurements has no room for a batch of costs.
constexpr int64_t kTuningFileBytesLeast = int64_t{16} << 20;
// A kernel's name shows how its author wrote it.
constexpr char kSharedName[] = "of several accounts";

std::string PrefixOf(const std::string& fleet_secret) {
  const Sha256Digest digest = Sha256("outboard accounts of " + fleet_secret);
  return ToHex(std::string(reinterpret_cast<const char*>(digest.data()), kFleetHashBytes)) + "-";
}

// <folder of `path`>/accounts/<account>/<its name>
std::string PathIn(const std::string& path, const std::string& account) {
  const fs::path whole(path);
  return (whole.parent_path() / kAccountsFolder / account / whole.filename()).string();
}

bool IsBetter(const Tuning& tuning, const Tuning& than) {
  return tuning.best() != nullptr && (than.best() == nullptr || tuning.width > than.width);
}

// Nothing is in `shared` but what IsShareableForm has found so: looking there tells nobody more.
class AccountTuning final : public TuningStore {
 public:
  struct Opened {
    HeldFolder folder;                  // of an account's file
    std::unique_ptr<TuningStore> file;  // nullptr: there is none
  };
  AccountTuning(Opened own, Opened shared)
      : own_folder_(std::move(own.folder)),
        shared_folder_(std::move(shared.folder)),
        own_(std::move(own.file)),
        shared_(std::move(shared.file)) {}

  absl::StatusOr<std::optional<Tuning>> Find(const TuningKey& key) override {
    absl::StatusOr<std::optional<Tuning>> own = own_->Find(key);
    if (shared_ == nullptr || !own.ok()) return own;
    absl::StatusOr<std::optional<Tuning>> shared = shared_->Find(key);
    if (!shared.ok() || !shared->has_value()) return own;
    (*shared)->name.clear();
    if (!own->has_value() || IsBetter(**shared, **own)) return shared;
    return own;
  }
  absl::Status Add(const TuningKey& key, const std::string& name,
                   const search::Trial& trial) override {
    if (Shares(key)) shared_->Add(key, kSharedName, trial).IgnoreError();
    return own_->Add(key, name, trial);
  }
  absl::Status Finish(const TuningKey& key, int width) override {
    if (Shares(key)) shared_->Finish(key, width).IgnoreError();
    return own_->Finish(key, width);
  }
  absl::Status AddCosts(std::span<const Demand> demands) override {
    return own_->AddCosts(demands);
  }
  absl::StatusOr<std::optional<Demand>> Costliest(int search_version, const std::string& hardware,
                                                  int width) override {
    return own_->Costliest(search_version, hardware, width);
  }

 private:
  // Of a search's many trials in a row, the kernel is looked at once.
  bool Shares(const TuningKey& key) {
    if (shared_ == nullptr || key.canonical.empty()) return false;
    if (key.kernel != looked_at_) {
      looked_at_ = key.kernel;
      shares_ = IsShareableForm(key.canonical, key.kernel);
    }
    return shares_;
  }

  const HeldFolder own_folder_, shared_folder_;
  const std::unique_ptr<TuningStore> own_, shared_;
  std::string looked_at_;
  bool shares_ = false;
};

// Without a file where it is not there and may not be made.
absl::StatusOr<AccountTuning::Opened> OpenFile(const std::string& path, const AccountFiles& files,
                                               HeldFolder::For what) {
  AccountTuning::Opened opened;
  if (path.empty() || (!files.learns && !fs::exists(path))) return opened;
  if (!files.owner.empty())
    opened.folder = HeldFolder::Take(fs::path(path).parent_path().string(), what);
  OB_ASSIGN_OR_RETURN(opened.file, TuningFile::Open(path, files.tuning_bytes_max));
  return opened;
}

int64_t NumberFromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? 0 : std::max<int64_t>(0, std::atoll(value));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TuningStore>> OpenTuning(const AccountFiles& files,
                                                        HeldFolder::For what) {
  OB_ASSIGN_OR_RETURN(AccountTuning::Opened own, OpenFile(files.tuning, files, what));
  if (own.file == nullptr) return nullptr;
  OB_ASSIGN_OR_RETURN(AccountTuning::Opened shared, OpenFile(files.shared_tuning, files, what));
  if (files.disk != nullptr) files.disk->OpenedMeasurements();
  return std::make_unique<AccountTuning>(std::move(own), std::move(shared));
}

AccountKernelsOptions AccountKernelsFromEnvironment() {
  AccountKernelsOptions options;
  if (const char* const folder = std::getenv("OUTBOARD_OBJECT_CACHE")) options.objects = folder;
  if (!IsSet("NOOPT") && !IsSet("REF")) options.store = KernelStorePath();
  const char* const beam = std::getenv("BEAM");
  options.learns = IsSet("OUTBOARD_IDLE_SEARCH") || (beam != nullptr && std::atoi(beam) > 0);
  options.objects_bytes_max = NumberFromEnvironment("OUTBOARD_OBJECT_CACHE_BYTES");
  options.store_bytes_max = NumberFromEnvironment("OUTBOARD_KERNEL_STORE_BYTES");
  return options;
}

AccountKernels::AccountKernels(AccountKernelsOptions options)
    : options_(std::move(options)), prefix_(PrefixOf(options_.fleet_secret)) {
  if (options_.one_user || (options_.objects.empty() && options_.store.empty())) return;
  const auto most = [](int64_t asked, int64_t of_one) {
    return asked > 0 ? asked : kFullAccounts * of_one;
  };
  AccountDiskOptions disk{
      .objects_bytes_max = most(options_.objects_bytes_max, kObjectCacheBytesMax),
      .measurements_bytes_max = most(options_.store_bytes_max, kTuningFileBytesMax)};
  if (!options_.objects.empty())
    disk.objects = (fs::path(options_.objects) / kAccountsFolder).string();
  if (!options_.store.empty())
    disk.measurements = (fs::path(options_.store).parent_path() / kAccountsFolder).string();
  disk_ = std::make_shared<AccountDisk>(std::move(disk));
}

bool AccountKernels::tunes() const {
  if (options_.store.empty()) return false;
  std::error_code ignored;
  return options_.learns ||
         fs::exists(options_.one_user ? fs::path(options_.store)
                                      : fs::path(options_.store).parent_path() / kAccountsFolder,
                    ignored);
}

AccountFiles AccountKernels::Locate(uint64_t account, bool shares) const {
  AccountFiles files{.learns = options_.learns};
  if (options_.objects_bytes_max > 0)
    files.objects_bytes_max = std::min(options_.objects_bytes_max, kObjectCacheBytesMax);
  if (options_.store_bytes_max > 0)
    files.tuning_bytes_max =
        std::clamp(options_.store_bytes_max, kTuningFileBytesLeast, kTuningFileBytesMax);
  if (options_.one_user) {
    files.objects = options_.objects;
    files.tuning = options_.store;
  } else if (account != 0) {
    const std::string name = absl::StrCat(prefix_, account);
    files.owner = name;
    files.disk = disk_;
    if (!options_.objects.empty())
      files.objects = (fs::path(options_.objects) / kAccountsFolder / name).string();
    if (!options_.store.empty()) {
      files.tuning = PathIn(options_.store, name);
      if (shares) files.shared_tuning = PathIn(options_.store, "shared");
    }
  }
  return files;
}

AccountFiles AccountKernels::FilesOf(uint64_t account, bool shares) {
  if (options_.one_user) account = 1;
  if (account != 0) {
    std::lock_guard lock(mutex_);
    std::erase_if(recent_, [&](const Account& other) { return other.number == account; });
    recent_.push_back({account, shares});
    if (recent_.size() > kRecentAccountsMax) recent_.pop_front();
  }
  return Locate(account, shares);
}

std::optional<AccountKernels::SearchTurn> AccountKernels::NextSearch(bool new_round) {
  if (options_.store.empty()) return std::nullopt;
  std::vector<Account> accounts;
  {
    std::lock_guard lock(mutex_);
    if (new_round) had_turns_.clear();
    for (const Account& account : recent_)
      if (!had_turns_.contains(account.number)) accounts.push_back(account);
  }
  if (accounts.empty()) return std::nullopt;
  std::error_code ignored;
  fs::create_directories(fs::path(options_.store).parent_path(), ignored);
  const int fd = open((options_.store + ".search").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return std::nullopt;
  }
  SearchTurn turn;
  turn.lock = std::shared_ptr<void>(nullptr, [fd](void*) {
    if (fd >= 0) close(fd);
  });
  const std::string hardware =
      options_.hardware.empty() ? HostTarget().Fingerprint() : options_.hardware;
  int64_t cost_us = -1;
  uint64_t chosen = 0;
  for (const Account& account : accounts) {
    const AccountFiles files = Locate(account.number, account.shares);
    const absl::StatusOr<std::unique_ptr<TuningStore>> store = OpenTuning(files, HeldFolder::kLook);
    if (!store.ok() || *store == nullptr) continue;
    const auto demand = (*store)->Costliest(search::kSpaceVersion, hardware, kIdleSearchWidth);
    if (!demand.ok() || !demand->has_value() || (*demand)->cost_us <= cost_us) continue;
    cost_us = (*demand)->cost_us;
    chosen = account.number;
    turn.files = files;
  }
  if (cost_us < 0) return std::nullopt;
  std::lock_guard lock(mutex_);
  had_turns_.insert(chosen);
  return turn;
}

}  // namespace outboard::worker
