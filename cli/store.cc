#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/connect.h"
#include "cli/progress_line.h"
#include "client/files/store_client.h"
#include "client/files/store_files.h"
#include "client/session/link/bulk.h"
#include "gateway/ledger/ids.h"

namespace outboard::cli {

namespace {

struct StoreFlags {
  std::string gateway;             // empty: $CLOUD_HOST, else this machine's
  std::vector<std::string> files;  // push
  std::vector<std::string> names;  // rm; pull, pin, unpin: one
  std::string name;                // push: of one file
  std::string output;              // pull
  bool force = false;              // pull
  std::string prefix;              // ls
  bool json = false;
};

using files::StoreClient;

constexpr int kInterrupted = 130;  // the shells' exit code for Ctrl-C

struct Cloud {
  UserGateway gateway;
  session::Protection protection;
  std::unique_ptr<StoreClient> store;
};

absl::StatusOr<Cloud> Connect(const StoreFlags& flags) {
  Cloud cloud;
  OB_ASSIGN_OR_RETURN(cloud.gateway, ConnectToGateway(flags.gateway));
  OB_ASSIGN_OR_RETURN(cloud.protection, session::Protection::FromEnvironment());
  cloud.store = std::make_unique<StoreClient>(cloud.gateway.channel, cloud.gateway.key);
  return cloud;
}

std::atomic<bool> interrupted{false};

// The first Ctrl-C ends the transfer cleanly, the second the process.
void OnInterrupt(int) {
  interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

int ReportTransfer(const absl::Status& status) {
  if (!interrupted || status.ok()) return Report(status);
  std::fputs("outboard: stopped; the same command goes on where this left off\n", stderr);
  return kInterrupted;
}

void Print(const files::Pushed& pushed, bool json) {
  if (json) {
    std::printf("{\"name\": %s, \"bytes\": %llu, \"sent_bytes\": %llu, \"arrays\": %d%s}\n",
                Quoted(pushed.name).c_str(), static_cast<unsigned long long>(pushed.size_bytes),
                static_cast<unsigned long long>(pushed.sent_bytes), pushed.arrays,
                pushed.whole_because.empty()
                    ? ""
                    : absl::StrCat(", \"whole_because\": ", Quoted(pushed.whole_because)).c_str());
    return;
  }
  std::printf("%s  %s%s, %s sent\n", pushed.name.c_str(), Bytes(pushed.size_bytes).c_str(),
              pushed.arrays > 0 ? absl::StrCat(" in ", Plural(pushed.arrays, "array")).c_str() : "",
              Bytes(pushed.sent_bytes).c_str());
}

int RunPush(const StoreFlags& flags) {
  if (!flags.name.empty() && flags.files.size() > 1)
    return Report(
        absl::InvalidArgumentError("--name is for a single file; push the other files separately"));
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  std::signal(SIGINT, OnInterrupt);
  const auto connections =
      session::MakeBulkConnections(cloud->gateway.target, cloud->gateway.key, cloud->protection);
  for (const std::string& file : flags.files) {
    std::optional<ProgressLine> line(std::filesystem::path(file).filename().string());
    auto pushed = files::PushFile(
        *cloud->store, connections, file, flags.name,
        {.progress = [&](const wire::TransferProgress& progress) { line->Show(progress); },
         .cancelled = &interrupted});
    line.reset();
    if (!pushed.ok()) return ReportTransfer(pushed.status());
    if (!pushed->whole_because.empty())
      std::fprintf(stderr, "outboard: %s is stored as it is, not by its arrays: %s\n", file.c_str(),
                   absl::Utf8SafeCHexEscape(pushed->whole_because).c_str());
    Print(*pushed, flags.json);
  }
  return 0;
}

int RunPull(const StoreFlags& flags) {
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  std::signal(SIGINT, OnInterrupt);
  const auto connections =
      session::MakeBulkConnections(cloud->gateway.target, cloud->gateway.key, cloud->protection);
  const std::string& name = flags.names.front();
  std::optional<ProgressLine> line(name);
  auto pulled = files::PullFile(
      *cloud->store, connections, name, {.path = flags.output, .replace = flags.force},
      {.progress = [&](const wire::TransferProgress& progress) { line->Show(progress); },
       .cancelled = &interrupted});
  line.reset();
  if (!pulled.ok()) return ReportTransfer(pulled.status());
  if (flags.json) {
    std::printf("{\"file\": %s, \"bytes\": %llu, \"received_bytes\": %llu, \"kept_bytes\": %llu}\n",
                Quoted(pulled->path).c_str(), static_cast<unsigned long long>(pulled->size_bytes),
                static_cast<unsigned long long>(pulled->received_bytes),
                static_cast<unsigned long long>(pulled->kept_bytes));
  } else {
    std::printf("%s  %s, %s received\n", pulled->path.c_str(), Bytes(pulled->size_bytes).c_str(),
                Bytes(pulled->received_bytes).c_str());
  }
  return 0;
}

int RunStoreList(const StoreFlags& flags) {
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  auto names = cloud->store->List(flags.prefix);
  if (!names.ok()) return Report(names.status());
  size_t width = 4;
  for (const proto::StoredName& stored : *names) width = std::max(width, stored.name().size());
  if (!flags.json && !names->empty())
    std::printf("%-*s  %10s  %7s  %s\n", static_cast<int>(width), "name", "size", "entries",
                "written");
  for (const proto::StoredName& stored : *names) {
    const std::string written = gateway::ToString(gateway::WallTime{stored.written_unix_ms()});
    if (flags.json) {
      std::printf(
          "{\"name\": %s, \"bytes\": %llu, \"entries\": %u, \"written\": \"%s\", \"pinned\": %s}\n",
          Quoted(stored.name()).c_str(), static_cast<unsigned long long>(stored.size_bytes()),
          stored.entries(), written.c_str(), stored.pinned() ? "true" : "false");
    } else {
      std::printf("%-*s  %10s  %7u  %s%s\n", static_cast<int>(width),
                  Printable(stored.name()).c_str(),
                  Bytes(stored.size_bytes()).c_str(), stored.entries(), written.c_str(),
                  stored.pinned() ? "  pinned" : "");
    }
  }
  return 0;
}

int RunStoreRemove(const StoreFlags& flags) {
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  for (const std::string& name : flags.names) {
    auto freed_bytes = cloud->store->Remove(name);
    if (!freed_bytes.ok()) return Report(freed_bytes.status());
    if (flags.json) {
      std::printf("{\"name\": %s, \"freed_bytes\": %llu}\n", Quoted(name).c_str(),
                  static_cast<unsigned long long>(*freed_bytes));
    } else {
      std::printf("%s  removed, %s free\n", name.c_str(), Bytes(*freed_bytes).c_str());
    }
  }
  return 0;
}

int RunStorePin(const StoreFlags& flags, bool pinned) {
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  const std::string& name = flags.names.front();
  const absl::Status status = cloud->store->Pin(name, pinned);
  if (status.ok() && flags.json)
    std::printf("{\"name\": %s, \"pinned\": %s}\n", Quoted(name).c_str(),
                pinned ? "true" : "false");
  return Report(status);
}

int RunStoreUsage(const StoreFlags& flags) {
  auto cloud = Connect(flags);
  if (!cloud.ok()) return Report(cloud.status());
  auto usage = cloud->store->Usage();
  if (!usage.ok()) return Report(usage.status());
  if (flags.json) {
    std::printf(
        "{\"used_bytes\": %llu, \"quota_bytes\": %llu, \"pinned_bytes\": %llu, "
        "\"unnamed_bytes\": %llu, \"names\": %llu}\n",
        static_cast<unsigned long long>(usage->used_bytes()),
        static_cast<unsigned long long>(usage->quota_bytes()),
        static_cast<unsigned long long>(usage->pinned_bytes()),
        static_cast<unsigned long long>(usage->unnamed_bytes()),
        static_cast<unsigned long long>(usage->names()));
    return 0;
  }
  const std::string quota =
      usage->quota_bytes() > 0 ? absl::StrCat(" of ", Bytes(usage->quota_bytes())) : "";
  std::printf(
      "%s%s used; %s under names or in use (%s, %s pinned); %s may go when room is needed\n",
      Bytes(usage->used_bytes()).c_str(), quota.c_str(),
      Bytes(usage->used_bytes() - usage->unnamed_bytes()).c_str(),
      Plural(static_cast<int>(usage->names()), "name").c_str(),
      Bytes(usage->pinned_bytes()).c_str(), Bytes(usage->unnamed_bytes()).c_str());
  return 0;
}

}  // namespace

void AddStoreCommands(Arguments& app) {
  const auto flags = std::make_shared<StoreFlags>();
  StoreFlags& stored = *flags;
  Command push = app.Subcommand("push", "Upload files and store them under names");
  push.Add("file", &stored.files, "Files to upload: safetensors array by array, others as a whole")
      .Required();
  push.Add("--name", &stored.name, "Name for a single file (default: the file's own)");
  Command pull = app.Subcommand("pull", "Download what is stored under a name");
  pull.Add("name", &stored.names, "The name, as `store ls` prints it").Required().Once();
  pull.Add("-o,--output", &stored.output, "Output file (default: the original name)");
  pull.Add("--force", &stored.force, "Replace a file that is there already");
  Command store = app.Subcommand("store", "List and manage stored names");
  store.RequireSubcommand();
  Command store_list = store.ListSubcommand("List names with size and date");
  store_list.Add("prefix", &stored.prefix, "Only names with this prefix");
  Command store_remove =
      store.Subcommand("rm", "Remove names, and the data that no other name uses");
  store_remove.Add("name", &stored.names, "Names, as `store ls` prints them").Required();
  Command pin = store.Subcommand("pin", "Protect a name from replacement and removal");
  Command unpin = store.Subcommand("unpin", "Undo pin");
  for (Command command : {pin, unpin})
    command.Add("name", &stored.names, "The name, as `store ls` prints it").Required().Once();
  Command store_usage = store.Subcommand("du", "Show the bytes used and the quota");
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage}) {
    command.Add("--gateway", &stored.gateway,
                "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
  }
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage})
    command.Add("--json", &stored.json, "Print JSON");
  push.Runs(flags, RunPush);
  pull.Runs(flags, RunPull);
  store_list.Runs(flags, RunStoreList);
  store_remove.Runs(flags, RunStoreRemove);
  pin.Runs([flags] { return RunStorePin(*flags, true); });
  unpin.Runs([flags] { return RunStorePin(*flags, false); });
  store_usage.Runs(flags, RunStoreUsage);
}

}  // namespace outboard::cli
