#include "gateway/accounts/worker_tokens.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/one_time_secret.h"
#include "gateway/base/worker_name.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE worker_token(
  hash BLOB PRIMARY KEY CHECK(length(hash) = 32),
  name TEXT NOT NULL,
  expires_ms INTEGER NOT NULL
) STRICT;
)sql",
};

constexpr std::string_view kPrefix = "ob_worker_";

absl::Status NotGood() {
  return absl::PermissionDeniedError(
      "the worker's token is not good: it was used, has expired, or is for another name; make one "
      "with `outboard cert token NAME`");
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerTokens>> WorkerTokens::Open(
    const std::string& path, const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("worker_tokens", kSchema, path, options));
  return std::unique_ptr<WorkerTokens>(new WorkerTokens(std::move(db)));
}

absl::StatusOr<Secret> WorkerTokens::Create(std::string_view name, WallTime now) {
  OB_RETURN_IF_ERROR(CheckWorkerName(name));
  OB_ASSIGN_OR_RETURN(Secret token, MakeOneTimeSecret(kPrefix));
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement forget,
                        db_->Prepare("DELETE FROM worker_token WHERE expires_ms <= ?"));
    OB_RETURN_IF_ERROR(forget.Bind(1, now.unix_ms).Run());
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO worker_token(hash, name, expires_ms) VALUES(?, ?, ?)"));
    return write.BindBlob(1, HashOfSecret(token.Reveal()))
        .BindText(2, name)
        .Bind(3, now.unix_ms + kWorkerTokenLifeMs)
        .Run();
  }));
  return token;
}

absl::Status WorkerTokens::Check(std::string_view token, std::string_view name, WallTime now) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement find, db_->Prepare("SELECT 1 FROM worker_token WHERE hash = ? AND "
                                                   "name = ? AND expires_ms > ?"));
  find.BindBlob(1, HashOfSecret(token)).BindText(2, name).Bind(3, now.unix_ms);
  OB_ASSIGN_OR_RETURN(const bool found, find.Step());
  return found ? absl::OkStatus() : NotGood();
}

absl::Status WorkerTokens::Spend(std::string_view token, std::string_view name, WallTime now) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement take,
                        db_->Prepare("DELETE FROM worker_token WHERE hash = ? AND name = ? AND "
                                     "expires_ms > ? RETURNING 1"));
    take.BindBlob(1, HashOfSecret(token)).BindText(2, name).Bind(3, now.unix_ms);
    OB_ASSIGN_OR_RETURN(const bool taken, take.Step());
    if (!taken) return NotGood();
    OB_ASSIGN_OR_RETURN(const bool more, take.Step());  // to its end, so that it counts
    return more ? absl::DataLossError("two tokens are one") : absl::OkStatus();
  });
}

}  // namespace outboard::gateway
