// A thin, checked wrapper of SQLite: opens files with our settings; prepared statements,
// transactions, errors as Status.
//
// Threads: a Database and its statements belong to one thread at a time (their owner holds a
// mutex); open one for each owner. Several connections and processes may use one file at once:
// readers never wait, writers take turns and wait up to busy_timeout_ms.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/failpoint.h"

struct sqlite3;
struct sqlite3_stmt;

namespace outboard::storage {

struct OpenOptions {
  bool create = true;  // false: NOT_FOUND if there is no file
  bool read_only = false;
  int busy_timeout_ms = 10'000;
  int64_t pages_max =
      0;  // of 4 KiB; 0: as many as the disk holds. A full file is RESOURCE_EXHAUSTED.
  // Opens a copy of the file, in memory, which ends with its Database. Nobody may have the file
  // open. For simulators: the same statements, without a disk.
  bool copied_to_memory = false;
  // What is committed survives a crash of the process, and a power cut only after SyncLog: so one
  // wait for the disk serves many transactions.
  bool synced_by_caller = false;
};

// Waits until all that was committed to the file, by any connection, survives a power cut.
// UNAVAILABLE: the disk failed; what was committed since the last call may be lost, and another
// call would not tell.
absl::Status SyncLog(const std::string& path);

// A database's prepared statements that nobody uses at the moment (sqlite.cc).
class IdleStatements;
struct IdlePlace;

// One prepared statement. Bind 1..n, then call Step until it returns false. Movable; must not
// outlive its Database, which keeps it for the next Prepare of the same SQL.
class Statement {
 public:
  Statement(Statement&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        place_(other.place_),
        idle_(std::move(other.idle_)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Copies the value. A wrong index is a bug of our own (OB_CHECK).
  Statement& Bind(int index, int64_t value);
  Statement& BindText(int index, std::string_view value);
  Statement& BindBlob(int index, std::string_view value);
  Statement& BindNull(int index);

  // Advances to the next row. Returns true if there is one to read, false at the end.
  absl::StatusOr<bool> Step();
  // Executes a statement that returns no rows.
  absl::Status Run();
  // Prepares the statement to be bound and stepped again.
  void Reset();

  // Columns of the current row, from 0. Views are valid until the next Step or Reset. A damaged
  // file may hold any type in any column: use the Is* tests where it matters.
  int64_t Int(int column) const;
  std::string_view Text(int column) const;
  std::string_view Blob(int column) const;
  bool IsNull(int column) const;
  bool IsInt(int column) const;
  bool IsText(int column) const;
  bool IsBlob(int column) const;

 private:
  friend class Database;
  Statement(sqlite3_stmt* handle, IdlePlace* place, std::shared_ptr<IdleStatements> idle);
  sqlite3_stmt* handle_;
  IdlePlace* place_;  // in *idle_
  std::shared_ptr<IdleStatements> idle_;
};

// Codes of every call: NOT_FOUND (no file), PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk or file
// full), DATA_LOSS (damaged, or not a database), UNAVAILABLE (busy for too long, I/O error),
// ALREADY_EXISTS (a UNIQUE or PRIMARY KEY constraint), FAILED_PRECONDITION (another constraint, or
// a trigger's refusal), INTERNAL (our own SQL). Messages never hold the file's path or bound
// values.
class Database {
 public:
  // Opens the file with WAL, synchronous=FULL (committed data survives a power cut; NORMAL with
  // synced_by_caller), foreign keys,
  // SQLite's defensive mode and an untrusted schema: a crafted file cannot run SQL with side
  // effects. A new file is readable by its owner only.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const OpenOptions& options = {});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Open, and Migrate unless read-only: for a class that has tables of its own in the file.
  static absl::StatusOr<std::unique_ptr<Database>> OpenFor(std::string_view component,
                                                           std::span<const char* const> steps,
                                                           const std::string& path,
                                                           const OpenOptions& options);

  // `sql` is one statement, a constant of the program and never input. To prepare the same one
  // again costs little.
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // Executes statements without parameters or rows.
  absl::Status Execute(const char* sql);

  // Runs `body` between BEGIN and COMMIT; rolls back on any error and returns it, and where `body`
  // throws. kWrite takes the write lock at once, so that data read by `body` is still current when
  // it writes. Not nestable. Passes `failpoints` (base/failpoint.h): of "ledger.post",
  // ledger.post.begin, .commit and .done.
  enum class Mode { kRead, kWrite };
  absl::Status Transaction(Mode mode, const std::function<absl::Status()>& body,
                           TransactionFailpoints failpoints = {});

  // From now on `guard` runs first in each write transaction, which fails with its error.
  using Guard = std::function<absl::Status(Database&)>;
  void GuardWrites(Guard guard) { guard_ = std::move(guard); }

  // Brings the tables of `component` to version steps.size(), running steps[version..] in one
  // transaction. FAILED_PRECONDITION: the file is of a newer version.
  absl::Status Migrate(std::string_view component, std::span<const char* const> steps);

 private:
  explicit Database(sqlite3* handle);
  static absl::StatusOr<std::unique_ptr<Database>> OpenCopy(const std::string& path);
  // Our settings, of any connection.
  absl::Status SetUp();
  // Of a statement without parameters that is executed often.
  absl::Status ExecutePrepared(std::string_view sql);

  sqlite3* handle_;
  std::shared_ptr<IdleStatements> idle_;
  Guard guard_;
};

}  // namespace outboard::storage
