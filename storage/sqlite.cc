#include "storage/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failpoint.h"

namespace outboard::storage {
namespace {

constexpr size_t kHeaderBytes = 100;  // of a file

absl::StatusCode CodeOf(int extended) {
  switch (extended) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_ROWID: return absl::StatusCode::kAlreadyExists;
    default: break;
  }
  switch (extended & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG: return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT: return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_PROTOCOL: return absl::StatusCode::kUnavailable;
    case SQLITE_CANTOPEN: return absl::StatusCode::kNotFound;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY: return absl::StatusCode::kPermissionDenied;
    case SQLITE_CONSTRAINT: return absl::StatusCode::kFailedPrecondition;
    default: return absl::StatusCode::kInternal;
  }
}

// sqlite3_errmsg is used for our own SQL's faults only: it may quote the schema, never bound values
// or paths.
absl::Status ToStatus(sqlite3* db, int result) {
  const int extended = db != nullptr ? sqlite3_extended_errcode(db) : result;
  const absl::StatusCode code = CodeOf(extended);
  std::string message = absl::StrCat("storage: ", sqlite3_errstr(result & 0xff));
  if (db != nullptr &&
      (code == absl::StatusCode::kInternal || code == absl::StatusCode::kFailedPrecondition)) {
    absl::StrAppend(&message, " (", sqlite3_errmsg(db), ")");
  }
  return absl::Status(code, message);
}

// Creates a new file here, since SQLite would make it readable by everybody; -wal and -shm take
// over its mode. Opened without O_EXCL, because another process may be creating the same one.
absl::Status CreatePrivately(const std::string& path) {
  // Never opens an existing file: closing any descriptor of it would drop the POSIX locks of this
  // process's other connections, and the next process to close one would remove the log while they
  // use it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    if (errno == EEXIST) return absl::OkStatus();
    if (errno == EACCES || errno == EPERM || errno == EROFS) {
      return absl::PermissionDeniedError("storage: may not create the data file");
    }
    if (errno == ENOSPC || errno == EDQUOT) {
      return absl::ResourceExhaustedError("storage: no space for the data file");
    }
    return absl::NotFoundError("storage: cannot create the data file: is there such a folder?");
  }
  ::close(fd);
  return absl::OkStatus();
}

// Nobody asks SQLite how much memory it has, and counting takes a lock for each allocation. Where
// another part of the process began to use SQLite first, it stays as it is.
void BeginWithoutStatistics() {
  [[maybe_unused]] static const int result = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

}  // namespace

// The idle statements of one SQL. Lives as long as its IdleStatements.
struct IdlePlace {
  const std::string sql;
  std::vector<sqlite3_stmt*> idle;
};

// By their SQL. To compile a statement takes longer than to run most of ours.
class IdleStatements {
 public:
  IdlePlace* PlaceOf(std::string_view sql) {
    if (const auto found = places_.find(sql); found != places_.end()) return found->second.get();
    auto place = std::make_unique<IdlePlace>(IdlePlace{std::string(sql), {}});
    IdlePlace* const made = place.get();
    places_.emplace(made->sql, std::move(place));
    return made;
  }
  // nullptr: there is none.
  sqlite3_stmt* Take(IdlePlace& place) {
    if (place.idle.empty()) return nullptr;
    sqlite3_stmt* const statement = place.idle.back();
    place.idle.pop_back();
    --count_;
    return statement;
  }

  void Give(sqlite3_stmt* statement, IdlePlace& place) {
    if (is_closed_ || count_ >= kIdleMax) {
      sqlite3_finalize(statement);
      return;
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    try {
      place.idle.push_back(statement);
      ++count_;
    } catch (const std::bad_alloc&) {  // it is given back by a destructor
      sqlite3_finalize(statement);
    }
  }

  // Statements that come back later, against their contract, are not kept.
  void Close() {
    is_closed_ = true;
    for (const auto& [sql, place] : places_) {
      for (sqlite3_stmt* const statement : place->idle) sqlite3_finalize(statement);
      place->idle.clear();
    }
  }

 private:
  static constexpr size_t kIdleMax = 128;
  std::unordered_map<std::string_view, std::unique_ptr<IdlePlace>> places_;  // by their sql
  size_t count_ = 0;
  bool is_closed_ = false;
};

Statement::Statement(sqlite3_stmt* handle, IdlePlace* place, std::shared_ptr<IdleStatements> idle)
    : handle_(handle), place_(place), idle_(std::move(idle)) {}

Statement::~Statement() {
  if (handle_ != nullptr) idle_->Give(handle_, *place_);
}

Statement& Statement::Bind(int index, int64_t value) {
  OB_CHECK(sqlite3_bind_int64(handle_, index, value) == SQLITE_OK);
  return *this;
}

// A null data pointer would bind NULL, hence "" for an empty view.
Statement& Statement::BindText(int index, std::string_view value) {
  const char* data = value.empty() ? "" : value.data();
  OB_CHECK(sqlite3_bind_text64(handle_, index, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8) ==
           SQLITE_OK);
  return *this;
}

Statement& Statement::BindBlob(int index, std::string_view value) {
  const char* data = value.empty() ? "" : value.data();
  OB_CHECK(sqlite3_bind_blob64(handle_, index, data, value.size(), SQLITE_TRANSIENT) == SQLITE_OK);
  return *this;
}

Statement& Statement::BindNull(int index) {
  OB_CHECK(sqlite3_bind_null(handle_, index) == SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  const int result = sqlite3_step(handle_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  absl::Status status = ToStatus(sqlite3_db_handle(handle_), result);
  sqlite3_reset(handle_);
  return status;
}

absl::Status Statement::Run() {
  OB_ASSIGN_OR_RETURN(const bool row, Step());
  OB_CHECK(!row);
  return absl::OkStatus();
}

void Statement::Reset() {
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(handle_, column); }

std::string_view Statement::Text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return data == nullptr ? std::string_view()
                         : std::string_view(data, sqlite3_column_bytes(handle_, column));
}

std::string_view Statement::Blob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(handle_, column));
  return data == nullptr ? std::string_view()
                         : std::string_view(data, sqlite3_column_bytes(handle_, column));
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}
bool Statement::IsInt(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_INTEGER;
}
bool Statement::IsText(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_TEXT;
}
bool Statement::IsBlob(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_BLOB;
}

absl::Status SyncLog(const std::string& path) {
  const int fd = open((path + "-wal").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return absl::OkStatus();  // all of it is in the file, and synced
  const bool synced = fd >= 0 && fdatasync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (synced) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("storage: the disk failed: ", strerror(error)));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const OpenOptions& options) {
  BeginWithoutStatistics();
  if (options.copied_to_memory) return OpenCopy(path);
  if (options.create && !options.read_only) OB_RETURN_IF_ERROR(CreatePrivately(path));
  sqlite3* handle = nullptr;
  const int flags = (options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                    SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Database> db(
      new Database(handle));  // after an error too, the handle must be closed
  if (result != SQLITE_OK) return ToStatus(nullptr, result);
  sqlite3_busy_timeout(handle, options.busy_timeout_ms);
  OB_RETURN_IF_ERROR(db->SetUp());
  if (options.read_only) return db;

  // The switch to WAL does not call the busy handler when two connections make it at once: retry
  // for the same time.
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.busy_timeout_ms);
  for (;;) {
    const absl::Status status = db->Execute("PRAGMA journal_mode=WAL");
    if (status.ok()) break;
    if (!absl::IsUnavailable(status) || std::chrono::steady_clock::now() >= deadline) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // NORMAL: the log is synced when it begins anew and before it goes into the file, not by each
  // commit (https://www.sqlite.org/pragma.html#pragma_synchronous).
  OB_RETURN_IF_ERROR(db->Execute(options.synced_by_caller ? "PRAGMA synchronous=NORMAL"
                                                          : "PRAGMA synchronous=FULL"));
  if (options.pages_max > 0) {
    OB_RETURN_IF_ERROR(
        db->Execute(absl::StrCat("PRAGMA max_page_count=", options.pages_max).c_str()));
  }
  return db;
}

absl::Status Database::SetUp() {
  // A crafted file must not run SQL of its own, nor may a bug of ours write into the schema.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  OB_RETURN_IF_ERROR(Execute("PRAGMA cell_size_check=ON"));
  return Execute("PRAGMA foreign_keys=ON");
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenCopy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream read;
  read << file.rdbuf();
  std::string bytes = std::move(read).str();
  if (!file || bytes.size() < kHeaderBytes)
    return absl::NotFoundError("storage: there is no data file to copy");
  // The versions of the file's format, for writers and readers: 2 has a log beside the file, which
  // memory has not (https://www.sqlite.org/fileformat2.html, section 1.3).
  bytes[18] = bytes[19] = 1;
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2(":memory:", &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  std::unique_ptr<Database> db(new Database(handle));
  if (result != SQLITE_OK) return ToStatus(nullptr, result);
  auto* const copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
  if (copy == nullptr) return absl::ResourceExhaustedError("storage: no memory for a copy");
  std::memcpy(copy, bytes.data(), bytes.size());
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (const int loaded = sqlite3_deserialize(
          handle, "main", copy, size, size,
          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
      loaded != SQLITE_OK)
    return ToStatus(handle, loaded);
  OB_RETURN_IF_ERROR(db->SetUp());
  OB_RETURN_IF_ERROR(db->Execute("PRAGMA journal_mode=MEMORY"));
  return db;
}

Database::Database(sqlite3* handle)
    : handle_(handle), idle_(std::make_shared<IdleStatements>()) {}

Database::~Database() {
  idle_->Close();
  // v2: a statement that is still alive, against the contract, keeps the handle open instead of
  // dangling.
  sqlite3_close_v2(handle_);
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  IdlePlace* const place = idle_->PlaceOf(sql);
  if (sqlite3_stmt* const idle = idle_->Take(*place)) return Statement(idle, place, idle_);
  sqlite3_stmt* handle = nullptr;
  const int result = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  if (result != SQLITE_OK) return ToStatus(handle_, result);
  OB_CHECK(handle != nullptr);
  return Statement(handle, place, idle_);
}

absl::Status Database::ExecutePrepared(std::string_view sql) {
  OB_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  return statement.Run();
}

absl::Status Database::Execute(const char* sql) {
  const int result = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : ToStatus(handle_, result);
}

absl::Status Database::Transaction(Mode mode, const std::function<absl::Status()>& body,
                                   TransactionFailpoints failpoints) {
  OB_CHECK(sqlite3_get_autocommit(handle_) != 0);
  OB_ASSIGN_OR_RETURN(Statement rollback, Prepare("ROLLBACK"));  // while there is memory for it
  OB_RETURN_IF_ERROR(ExecutePrepared(mode == Mode::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  // Also where something throws. A full disk or an I/O error may have rolled back already. A failed
  // rollback is not reported: SQLite ends the transaction all the same.
  const absl::Cleanup roll_back = [&] {
    if (sqlite3_get_autocommit(handle_) == 0) sqlite3_step(rollback.handle_);
  };
  if (failpoints.has_any()) PassFailpoint(failpoints.begin());
  absl::Status status;
  if (mode == Mode::kWrite && guard_ != nullptr) status = guard_(*this);
  if (status.ok()) status = body();
  if (status.ok()) {
    if (failpoints.has_any()) PassFailpoint(failpoints.commit());
    status = ExecutePrepared("COMMIT");
    if (status.ok() && failpoints.has_any()) PassFailpoint(failpoints.done());
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenFor(std::string_view component,
                                                            std::span<const char* const> steps,
                                                            const std::string& path,
                                                            const OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Open(path, options));
  if (!options.read_only) OB_RETURN_IF_ERROR(db->Migrate(component, steps));
  return db;
}

absl::Status Database::Migrate(std::string_view component, std::span<const char* const> steps) {
  const auto version = [&]() -> absl::StatusOr<int64_t> {
    OB_ASSIGN_OR_RETURN(Statement read,
                        Prepare("SELECT version FROM schema_version WHERE component = ?"));
    read.BindText(1, component);
    OB_ASSIGN_OR_RETURN(const bool found, read.Step());
    return found ? read.Int(0) : 0;
  };
  return Transaction(Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(
        Execute("CREATE TABLE IF NOT EXISTS schema_version(component TEXT PRIMARY KEY, version "
                "INTEGER NOT NULL) STRICT"));
    OB_ASSIGN_OR_RETURN(const int64_t from, version());
    const auto to = static_cast<int64_t>(steps.size());
    if (from < 0 || from > to) {
      return absl::FailedPreconditionError(absl::StrCat("storage: the tables of ",
                                                        std::string(component), " have version ",
                                                        from, ", this program knows up to ", to));
    }
    if (from == to) return absl::OkStatus();
    for (int64_t step = from; step < to; ++step) OB_RETURN_IF_ERROR(Execute(steps[step]));
    OB_ASSIGN_OR_RETURN(Statement write,
                        Prepare("INSERT INTO schema_version(component, version) VALUES(?1, ?2) "
                                "ON CONFLICT(component) DO UPDATE SET version = ?2"));
    return write.BindText(1, component).Bind(2, to).Run();
  });
}

}  // namespace outboard::storage
