#include "gateway/accounts/worker_quarantine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE worker_set_aside(
  identity TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  why TEXT NOT NULL,
  since_ms INTEGER NOT NULL
) STRICT;
)sql",
};

// All are read every two seconds. Whoever has the fleet secret makes identities as it likes.
constexpr int64_t kSetAsideMax = 10'000;
constexpr size_t kTextBytesMax = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<QuarantineRows>> QuarantineRows::Open(
    const std::string& path, const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("workers", kSchema, path, options));
  return std::unique_ptr<QuarantineRows>(new QuarantineRows(std::move(db)));
}

absl::Status QuarantineRows::Add(const SetAsideWorker& worker) {
  for (const std::string* text : {&worker.identity, &worker.name, &worker.why})
    if (text->size() > kTextBytesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("quarantine: a text of ", text->size(), " bytes; limit ", kTextBytesMax));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement count, db_->Prepare("SELECT count(*) FROM worker_set_aside"));
    OB_RETURN_IF_ERROR(count.Step().status());
    if (count.Int(0) >= kSetAsideMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("quarantine: ", count.Int(0), " workers are set aside; limit ", kSetAsideMax,
                       ": lift some, and replace the fleet secret"));
    OB_ASSIGN_OR_RETURN(Statement write,
                        db_->Prepare("INSERT INTO worker_set_aside(identity, name, why, since_ms) "
                                     "VALUES(?, ?, ?, ?) ON CONFLICT(identity) DO NOTHING"));
    return write.BindText(1, worker.identity)
        .BindText(2, worker.name)
        .BindText(3, worker.why)
        .Bind(4, worker.since.unix_ms)
        .Run();
  });
}

absl::StatusOr<std::vector<SetAsideWorker>> QuarantineRows::ReadLocked() {
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT identity, name, why, since_ms FROM worker_set_aside "
                                   "ORDER BY since_ms, identity"));
  std::vector<SetAsideWorker> all;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return all;
    all.push_back({std::string(query.Text(0)), std::string(query.Text(1)),
                   std::string(query.Text(2)), WallTime{query.Int(3)}});
  }
}

absl::StatusOr<std::vector<SetAsideWorker>> QuarantineRows::Read() {
  absl::MutexLock lock(&mutex_);
  return ReadLocked();
}

absl::StatusOr<std::vector<SetAsideWorker>> QuarantineRows::Lift(
    std::string_view identity_or_name) {
  absl::MutexLock lock(&mutex_);
  std::vector<SetAsideWorker> lifted;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::vector<SetAsideWorker> all, ReadLocked());
    OB_ASSIGN_OR_RETURN(Statement remove,
                        db_->Prepare("DELETE FROM worker_set_aside WHERE identity = ?"));
    for (const SetAsideWorker& worker : all) {
      if (worker.identity != identity_or_name && worker.name != identity_or_name) continue;
      remove.Reset();
      OB_RETURN_IF_ERROR(remove.BindText(1, worker.identity).Run());
      lifted.push_back(worker);
    }
    return absl::OkStatus();
  }));
  return lifted;
}

}  // namespace outboard::gateway
