#include "gateway/accounts/folder_turn.h"

#include <memory>

#include "base/check.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE gateway_turn(id INTEGER PRIMARY KEY CHECK(id = 1), number INTEGER NOT NULL) STRICT;
INSERT INTO gateway_turn VALUES(1, 0);
)sql",
};

absl::StatusOr<int64_t> ReadTurn(Database& db) {
  OB_ASSIGN_OR_RETURN(Statement read, db.Prepare("SELECT number FROM gateway_turn"));
  OB_ASSIGN_OR_RETURN(const bool found, read.Step());
  if (!found) return absl::DataLossError("storage: the accounts file has no row in gateway_turn");
  return read.Int(0);
}

}  // namespace

absl::StatusOr<FolderTurn> FolderTurn::Take(const std::string& accounts_path) {
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<Database> db,
                      Database::OpenFor("turns", kSchema, accounts_path, {}));
  int64_t number = 0;
  OB_RETURN_IF_ERROR(db->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(db->Execute("UPDATE gateway_turn SET number = number + 1"));
    OB_ASSIGN_OR_RETURN(number, ReadTurn(*db));
    return absl::OkStatus();
  }));
  return FolderTurn(number);
}

std::function<absl::Status(Database&)> FolderTurn::Guard() const {
  return [number = number_](Database& db) -> absl::Status {
    OB_ASSIGN_OR_RETURN(const int64_t now, ReadTurn(db));
    if (now == number) return absl::OkStatus();
    return absl::CancelledError("another gateway has taken the data folder since this one began");
  };
}

}  // namespace outboard::gateway
