#include "worker/tuning/tuning_store.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "compiler/optimize/opt.h"
#include "proto/tuning.pb.h"
#include "storage/sqlite.h"
#include "telemetry/counters.h"

namespace outboard::worker {
namespace {

using search::Conditions;
using search::Trial;
using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    "CREATE TABLE kernel ("
    "  id INTEGER PRIMARY KEY, kernel BLOB NOT NULL, search INTEGER NOT NULL,"
    "  hardware TEXT NOT NULL, name TEXT NOT NULL, width INTEGER NOT NULL DEFAULT 0,"
    "  UNIQUE (kernel, search, hardware)) STRICT;"
    "CREATE TABLE trial ("
    "  id INTEGER PRIMARY KEY, kernel INTEGER NOT NULL REFERENCES kernel (id) ON DELETE CASCADE,"
    "  opts TEXT NOT NULL, time_ns INTEGER NOT NULL, exact INTEGER NOT NULL,"
    "  verified INTEGER NOT NULL,"
    "  UNIQUE (kernel, opts)) STRICT;",
    "CREATE TABLE demand ("
    "  kernel INTEGER PRIMARY KEY REFERENCES kernel (id) ON DELETE CASCADE,"
    "  encoding BLOB NOT NULL, cost_us INTEGER NOT NULL) STRICT;"
    "CREATE INDEX demand_by_cost ON demand (cost_us);",
    // The opening of the file in which the kernel was last used.
    "ALTER TABLE kernel ADD COLUMN used INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX kernel_by_use ON kernel (used);",
    // What the device ran at.
    "ALTER TABLE trial ADD COLUMN clock_mhz INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trial ADD COLUMN power_mw INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trial ADD COLUMN celsius INTEGER NOT NULL DEFAULT 0;",
};
constexpr int64_t kPageBytes = 4096;  // SQLite's
// A transaction marks so many: a look-up of a step does not wait for the disk.
constexpr size_t kFoundMax = 1024;
constexpr size_t kKernelIdBytes = 32;
constexpr size_t kTextBytesMax = 4096;
// Half an hour of a device: more of it says no more.
constexpr int64_t kCostMostUs = int64_t{1} << 31;
// Of a clock in MHz, milliwatts or degrees: above is nonsense.
constexpr int64_t kConditionMax = 100'000'000;

absl::Status Check(const TuningKey& key) {
  if (key.kernel.size() != kKernelIdBytes)
    return absl::InvalidArgumentError(absl::StrCat("tuning: a kernel id of ", key.kernel.size(),
                                                   " bytes instead of ", kKernelIdBytes));
  if (key.hardware.empty() || key.hardware.size() > kTextBytesMax)
    return absl::InvalidArgumentError("tuning: no hardware class, or one that is too long");
  return absl::OkStatus();
}

absl::Status Check(const Trial& trial) {
  if (codegen::OptsToString(trial.opts).size() > kTextBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("tuning: Opts of more than ", kTextBytesMax, " bytes"));
  if (trial.time_ns < 0 || (trial.verified && trial.time_ns == 0))
    return absl::InvalidArgumentError("tuning: a time that cannot be");
  return absl::OkStatus();
}

// As it was written; what cannot be is not known.
int MakeCondition(int64_t number) {
  return number < 0 || number > kConditionMax ? 0 : static_cast<int>(number);
}

// A trial as it was written.
absl::StatusOr<Trial> MakeTrial(std::string_view opts, int64_t time_ns, bool exact, bool verified,
                                const Conditions& at) {
  Trial trial{.time_ns = time_ns, .exact = exact, .verified = verified, .at = at};
  OB_ASSIGN_OR_RETURN(trial.opts, codegen::ParseOpts(opts));
  OB_RETURN_IF_ERROR(Check(trial));
  return trial;
}

absl::StatusOr<int64_t> NumberFrom(Database& db, std::string_view sql) {
  OB_ASSIGN_OR_RETURN(Statement query, db.Prepare(sql));
  OB_ASSIGN_OR_RETURN(const bool found, query.Step());
  return found ? query.Int(0) : 0;
}

}  // namespace

std::string KernelStorePath() {
  if (const char* const path = std::getenv("OUTBOARD_KERNEL_STORE"); path != nullptr) return path;
  const std::string caches = CacheFolder();
  return caches.empty() ? "" : absl::StrCat(caches, "/kernels.db");
}

const Trial* Tuning::best() const {
  const Trial* best = nullptr;
  for (const Trial& trial : trials)
    if (trial.verified && trial.exact && (best == nullptr || trial.time_ns < best->time_ns))
      best = &trial;
  return best;
}

absl::StatusOr<std::vector<std::optional<Tuning>>> TuningStore::FindAll(
    std::span<const TuningKey> keys) {
  std::vector<std::optional<Tuning>> all;
  for (const TuningKey& key : keys) {
    OB_ASSIGN_OR_RETURN(std::optional<Tuning> found, Find(key));
    all.push_back(std::move(found));
  }
  return all;
}

TuningFile::TuningFile(std::unique_ptr<Database> db, int64_t pages_max, int64_t opening)
    : pages_max_(pages_max), opening_(opening), db_(std::move(db)) {}
TuningFile::~TuningFile() {
  absl::MutexLock lock(&mutex_);
  MarkFound().IgnoreError();  // found or not, it is there
}

absl::StatusOr<std::unique_ptr<TuningFile>> TuningFile::Open(const std::string& path,
                                                             int64_t bytes_max) {
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<TuningFile>> {
    storage::OpenOptions options;
    options.pages_max = bytes_max / kPageBytes;
    OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, options));
    OB_RETURN_IF_ERROR(db->Migrate("kernels", kSchema));
    OB_ASSIGN_OR_RETURN(const int64_t last, NumberFrom(*db, "SELECT max(used) FROM kernel"));
    return std::unique_ptr<TuningFile>(
        new TuningFile(std::move(db), options.pages_max, std::max<int64_t>(last, 0) + 1));
  };
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  absl::StatusOr<std::unique_ptr<TuningFile>> store = open();
  if (!absl::IsDataLoss(store.status())) return store;
  for (const char* part : {"", "-wal", "-shm"}) std::filesystem::remove(path + part, ignored);
  return open();
}

absl::StatusOr<std::vector<Tuning>> TuningFile::Read(const TuningKey* key) {
  const std::string columns =
      "SELECT k.id, k.kernel, k.search, k.hardware, k.name, k.width, t.opts, t.time_ns, "
      "t.exact, t.verified, k.used, t.clock_mhz, t.power_mw, t.celsius "
      "FROM kernel k JOIN trial t ON t.kernel = k.id ";
  OB_ASSIGN_OR_RETURN(
      Statement query,
      db_->Prepare(columns + (key == nullptr
                                  ? "ORDER BY k.name, k.kernel, k.search, k.hardware, t.id"
                                  : "WHERE k.kernel = ? AND k.search = ? AND k.hardware = ? "
                                    "ORDER BY t.id")));
  if (key != nullptr)
    query.BindBlob(1, key->kernel).Bind(2, key->search_version).BindText(3, key->hardware);
  std::vector<Tuning> tunings;
  int64_t last = -1;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) break;
    if (query.Int(0) != last) {
      last = query.Int(0);
      if (key != nullptr && query.Int(10) < opening_) found_.push_back(last);
      tunings.push_back({.key = {.kernel = std::string(query.Blob(1)),
                                 .search_version = static_cast<int>(query.Int(2)),
                                 .hardware = std::string(query.Text(3))},
                         .name = std::string(query.Text(4)),
                         .width = static_cast<int>(query.Int(5)),
                         .trials = {}});
    }
    if (tunings.back().trials.size() >= kTrialsMax) continue;
    // What a damaged or hostile file holds is as good as not there.
    absl::StatusOr<Trial> trial =
        MakeTrial(query.Text(6), query.Int(7), query.Int(8) != 0, query.Int(9) != 0,
                  {.clock_mhz = MakeCondition(query.Int(11)),
                   .power_mw = MakeCondition(query.Int(12)),
                   .celsius = MakeCondition(query.Int(13))});
    if (trial.ok()) tunings.back().trials.push_back(*std::move(trial));
  }
  std::erase_if(tunings, [](const Tuning& tuning) { return tuning.trials.empty(); });
  return tunings;
}

absl::StatusOr<std::optional<Tuning>> TuningFile::Find(const TuningKey& key) {
  OB_RETURN_IF_ERROR(Check(key));
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(std::vector<Tuning> found, Read(&key));
  telemetry::CountAs(telemetry::Metric::kTuningLookups,
                     found.empty() ? telemetry::Lookup::kMiss : telemetry::Lookup::kHit);
  if (found_.size() >= kFoundMax) MarkFound().IgnoreError();
  if (found.empty()) return std::optional<Tuning>();
  return std::optional<Tuning>(std::move(found[0]));
}

absl::Status TuningFile::MarkFound() {
  if (found_.empty()) return absl::OkStatus();
  const std::vector<int64_t> rows = std::exchange(found_, {});
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement update,
                        db_->Prepare("UPDATE kernel SET used = max(used, ?) WHERE id = ?"));
    for (const int64_t row : rows) {
      OB_RETURN_IF_ERROR(update.Bind(1, opening_).Bind(2, row).Run());
      update.Reset();
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> TuningFile::RowOf(const TuningKey& key, const std::string& name) {
  OB_ASSIGN_OR_RETURN(Statement insert,
                      db_->Prepare("INSERT INTO kernel (kernel, search, hardware, name, used) "
                                   "VALUES (?, ?, ?, ?, ?) ON CONFLICT (kernel, search, hardware) "
                                   "DO UPDATE SET used = max(used, excluded.used)"));
  OB_RETURN_IF_ERROR(insert.BindBlob(1, key.kernel)
                         .Bind(2, key.search_version)
                         .BindText(3, key.hardware)
                         .BindText(4, name.substr(0, kTextBytesMax))
                         .Bind(5, opening_)
                         .Run());
  OB_ASSIGN_OR_RETURN(
      Statement find,
      db_->Prepare("SELECT id FROM kernel WHERE kernel = ? AND search = ? AND hardware = ?"));
  OB_ASSIGN_OR_RETURN(
      const bool found,
      find.BindBlob(1, key.kernel).Bind(2, key.search_version).BindText(3, key.hardware).Step());
  if (!found) return absl::DataLossError("tuning: a row that was written is not there");
  return find.Int(0);
}

// An eighth of the file is room for what one transaction adds.
absl::Status TuningFile::MakeRoom() {
  const auto pages = [&]() -> absl::StatusOr<int64_t> {
    OB_ASSIGN_OR_RETURN(const int64_t all, NumberFrom(*db_, "PRAGMA page_count"));
    OB_ASSIGN_OR_RETURN(const int64_t free, NumberFrom(*db_, "PRAGMA freelist_count"));
    return all - free;
  };
  OB_ASSIGN_OR_RETURN(int64_t used, pages());
  if (used <= pages_max_ / 8 * 7) return absl::OkStatus();
  while (used > pages_max_ / 4 * 3) {
    OB_ASSIGN_OR_RETURN(const int64_t kernels, NumberFrom(*db_, "SELECT count(*) FROM kernel"));
    if (kernels == 0) break;
    OB_ASSIGN_OR_RETURN(Statement remove,
                        db_->Prepare("DELETE FROM kernel WHERE id IN "
                                     "(SELECT id FROM kernel ORDER BY used, id LIMIT ?)"));
    OB_RETURN_IF_ERROR(remove.Bind(1, kernels / 16 + 1).Run());
    OB_ASSIGN_OR_RETURN(used, pages());
  }
  return absl::OkStatus();
}

absl::Status TuningFile::Add(const TuningKey& key, const std::string& name, const Trial& trial) {
  OB_RETURN_IF_ERROR(Check(key));
  OB_RETURN_IF_ERROR(Check(trial));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(MakeRoom());
    OB_ASSIGN_OR_RETURN(const int64_t row, RowOf(key, name));
    OB_ASSIGN_OR_RETURN(Statement count,
                        db_->Prepare("SELECT count(*) FROM trial WHERE kernel = ?"));
    OB_RETURN_IF_ERROR(count.Bind(1, row).Step().status());
    if (count.Int(0) >= kTrialsMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("tuning: a kernel with ", count.Int(0), " trials"));
    OB_ASSIGN_OR_RETURN(Statement insert,
                        db_->Prepare("INSERT INTO trial (kernel, opts, time_ns, exact, verified, "
                                     "clock_mhz, power_mw, celsius) "
                                     "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                                     "ON CONFLICT (kernel, opts) DO UPDATE "
                                     "SET time_ns = excluded.time_ns, exact = excluded.exact, "
                                     "verified = excluded.verified, "
                                     "clock_mhz = excluded.clock_mhz, "
                                     "power_mw = excluded.power_mw, celsius = excluded.celsius"));
    return insert.Bind(1, row)
        .BindText(2, codegen::OptsToString(trial.opts))
        .Bind(3, trial.time_ns)
        .Bind(4, trial.exact)
        .Bind(5, trial.verified)
        .Bind(6, trial.at.clock_mhz)
        .Bind(7, trial.at.power_mw)
        .Bind(8, trial.at.celsius)
        .Run();
  }, "tuning.add");
}

absl::Status TuningFile::Finish(const TuningKey& key, int width) {
  OB_RETURN_IF_ERROR(Check(key));
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement update,
                      db_->Prepare("UPDATE kernel SET width = max(width, ?) "
                                   "WHERE kernel = ? AND search = ? AND hardware = ?"));
  return update.Bind(1, width)
      .BindBlob(2, key.kernel)
      .Bind(3, key.search_version)
      .BindText(4, key.hardware)
      .Run();
}

absl::Status TuningFile::AddCosts(std::span<const Demand> demands) {
  for (const Demand& demand : demands) OB_RETURN_IF_ERROR(Check(demand.key));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(MakeRoom());
    OB_ASSIGN_OR_RETURN(
        Statement insert,
        db_->Prepare("INSERT INTO demand (kernel, encoding, cost_us) VALUES (?, ?, ?) "
                     "ON CONFLICT (kernel) DO UPDATE SET "
                     "cost_us = min(cost_us + excluded.cost_us, ?), encoding = excluded.encoding"));
    for (const Demand& demand : demands) {
      if (demand.encoding.empty() || demand.encoding.size() > kDemandBytesMax) continue;
      OB_ASSIGN_OR_RETURN(const int64_t row, RowOf(demand.key, demand.name));
      OB_RETURN_IF_ERROR(insert.Bind(1, row)
                             .BindBlob(2, demand.encoding)
                             .Bind(3, std::clamp<int64_t>(demand.cost_us, 0, kCostMostUs))
                             .Bind(4, kCostMostUs)
                             .Run());
      insert.Reset();
    }
    return absl::OkStatus();
  }, "tuning.costs");
}

absl::StatusOr<std::optional<Demand>> TuningFile::Costliest(int search_version,
                                                            const std::string& hardware,
                                                            int width) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT k.kernel, k.name, d.encoding, d.cost_us "
                                   "FROM demand d JOIN kernel k ON d.kernel = k.id "
                                   "WHERE k.search = ? AND k.hardware = ? AND k.width < ? "
                                   "ORDER BY d.cost_us DESC, k.kernel LIMIT 1"));
  OB_ASSIGN_OR_RETURN(const bool found,
                      query.Bind(1, search_version).BindText(2, hardware).Bind(3, width).Step());
  if (!found) return std::optional<Demand>();
  return std::optional<Demand>(Demand{.key = {std::string(query.Blob(0)), search_version, hardware},
                                      .name = std::string(query.Text(1)),
                                      .encoding = std::string(query.Blob(2)),
                                      .cost_us = query.Int(3)});
}

absl::StatusOr<std::vector<Tuning>> TuningFile::List() {
  absl::MutexLock lock(&mutex_);
  return Read(nullptr);
}

absl::StatusOr<int64_t> TuningFile::Remove(const std::string& prefix) {
  absl::MutexLock lock(&mutex_);
  int64_t removed = 0;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT id, kernel FROM kernel"));
    std::vector<int64_t> rows;
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, query.Step());
      if (!more) break;
      const std::string hex = absl::BytesToHexString(std::string(query.Blob(1)));
      if (absl::StartsWith(hex, absl::AsciiStrToLower(prefix))) rows.push_back(query.Int(0));
    }
    OB_ASSIGN_OR_RETURN(Statement remove, db_->Prepare("DELETE FROM kernel WHERE id = ?"));
    for (const int64_t row : rows) {
      OB_RETURN_IF_ERROR(remove.Bind(1, row).Run());
      remove.Reset();
    }
    removed = static_cast<int64_t>(rows.size());
    return absl::OkStatus();
  }));
  return removed;
}

void TrialToWire(const Trial& trial, proto::Trial& message) {
  message.set_opts(codegen::OptsToString(trial.opts));
  message.set_time_ns(trial.time_ns);
  message.set_over(!trial.exact);
  message.set_verified(trial.verified);
  message.set_clock_mhz(trial.at.clock_mhz);
  message.set_power_mw(trial.at.power_mw);
  message.set_celsius(trial.at.celsius);
}

absl::StatusOr<Trial> TrialFromWire(const proto::Trial& trial) {
  return MakeTrial(trial.opts(), trial.time_ns(), !trial.over(), trial.verified(),
                   {.clock_mhz = MakeCondition(trial.clock_mhz()),
                    .power_mw = MakeCondition(trial.power_mw()),
                    .celsius = MakeCondition(trial.celsius())});
}

void TuningToWire(const Tuning& tuning, proto::TunedKernel& message) {
  message.set_kernel(tuning.key.kernel);
  message.set_search_version(tuning.key.search_version);
  message.set_hardware(tuning.key.hardware);
  message.set_name(tuning.name);
  message.set_width(tuning.width);
  for (const Trial& trial : tuning.trials) TrialToWire(trial, *message.add_trials());
}

absl::StatusOr<Tuning> TuningFromWire(const proto::TunedKernel& message) {
  Tuning tuning{.key = {.kernel = message.kernel(),
                        .search_version = message.search_version(),
                        .hardware = message.hardware()},
                .name = message.name(),
                .width = message.width(),
                .trials = {}};
  OB_RETURN_IF_ERROR(Check(tuning.key));
  for (const proto::Trial& trial : message.trials()) {
    OB_ASSIGN_OR_RETURN(Trial read, TrialFromWire(trial));
    tuning.trials.push_back(std::move(read));
  }
  if (tuning.trials.empty()) return absl::InvalidArgumentError("tuning: a kernel without a trial");
  return tuning;
}

absl::StatusOr<std::string> TuningToLine(const Tuning& tuning) {
  proto::TunedKernel message;
  TuningToWire(tuning, message);
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(message, &line).ok())
    return absl::InvalidArgumentError("tuning: a text that is not UTF-8");
  return line;
}

absl::StatusOr<Tuning> TuningFromLine(const std::string& line) {
  proto::TunedKernel message;
  if (!google::protobuf::util::JsonStringToMessage(line, &message).ok())
    return absl::InvalidArgumentError("tuning: not a line of `outboard cache export`");
  return TuningFromWire(message);
}

}  // namespace outboard::worker
