#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "gateway/accounts/worker_tokens.h"
#include "gateway/base/clock.h"
#include "gateway/server/gateway.h"
#include "gateway/tls/authority_files.h"
#include "wire/tls/private_file.h"

namespace outboard::cli {

namespace {

struct CertFlags {
  std::string data;
  std::string file;                // renew, show: a certificate's; empty: the gateway's own
  std::string output;              // issue: the files' name without its ending
  std::string serial;              // revoke: a serial number, or a worker's name
  std::vector<std::string> names;  // init, issue, renew
  int days = 90;
  bool fingerprint = false;  // show: nothing else
  bool force = false;
  bool json = false;
};

using tls::Certificate;
using tls::KeyAndChain;
using tls::Replace;

constexpr int64_t kDayS = 86'400;

std::string ServerPath(const CertFlags& flags) {
  return gateway::TlsFolder(DataFolderOr(flags.data)) + "/server.pem";
}

// "nginx" of "nginx", "nginx.pem" and "nginx.key".
std::string WithoutEnding(const std::string& path) {
  for (const char* const ending : {".pem", ".key"})
    if (path.ends_with(ending)) return path.substr(0, path.size() - 4);
  return path;
}

absl::StatusOr<tls::Authority> OpenAuthority(const CertFlags& flags) {
  auto authority = gateway::ReadAuthority(DataFolderOr(flags.data));
  if (!absl::IsNotFound(authority.status())) return authority;
  return absl::InvalidArgumentError(absl::StrCat("there is no CA in ", DataFolderOr(flags.data),
                                                 ": make one with `outboard cert init`, or name "
                                                 "the gateway's folder with --data"));
}

// A certificate and its key in two files, as other programs want them.
absl::Status WritePair(const std::string& prefix, const KeyAndChain& pair, Replace replace) {
  OB_RETURN_IF_ERROR(
      tls::WriteFile(prefix + ".key", pair.key.ToPem(), /*is_secret=*/true, replace));
  return tls::WriteFile(prefix + ".pem", pair.ChainToPem(), /*is_secret=*/false, replace);
}

absl::StatusOr<std::vector<Certificate>> ReadChain(const std::string& path) {
  // A file with a key may be read by its owner only; what is shown of it is no secret.
  OB_ASSIGN_OR_RETURN(const std::string pem, tls::ReadFile(path, /*is_secret=*/false));
  return Certificate::ParseAll(path, pem);
}

std::string Time(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

const char* StateOf(const Certificate& certificate) {
  const absl::Time now = absl::Now();
  if (now >= certificate.not_after()) return "expired";
  if (now < certificate.not_before()) return "not valid yet";
  return now >= tls::RenewAt(certificate.not_before(), certificate.not_after()) ? "due for renewal"
                                                                                : "good";
}

void PrintAsJson(const Certificate& one, bool is_last) {
  std::vector<std::string> names;
  for (const std::string& name : one.names()) names.push_back(Quoted(name));
  std::printf(
      "{\"name\": %s, \"issuer\": %s, \"names\": [%s], \"serial\": \"%s\", \"ca\": %s, "
      "\"not_before\": \"%s\", \"not_after\": \"%s\", \"state\": \"%s\", \"fingerprint\": "
      "\"%s\"}%s\n",
      Quoted(one.common_name()).c_str(), Quoted(one.issuer()).c_str(),
      absl::StrJoin(names, ", ").c_str(), one.serial().c_str(),
      one.is_authority() ? "true" : "false", Time(one.not_before()).c_str(),
      Time(one.not_after()).c_str(), StateOf(one), one.fingerprint().ToString().c_str(),
      is_last ? "" : ",");
}

void Print(const Certificate& one) {
  std::printf("%s%s\n", one.common_name().c_str(), one.is_authority() ? " (CA)" : "");
  if (const auto names = one.names(); !names.empty())
    std::printf("  for          %s\n", absl::StrJoin(names, ", ").c_str());
  std::printf(
      "  issued by    %s\n  valid        %s to %s, %s\n  serial       %s\n"
      "  fingerprint  %s\n",
      one.issuer().c_str(), Time(one.not_before()).c_str(), Time(one.not_after()).c_str(),
      StateOf(one), one.serial().c_str(), one.fingerprint().ToString().c_str());
}

absl::Status Show(const CertFlags& flags) {
  const std::string path =
      !flags.file.empty() ? flags.file : gateway::TlsFolder(DataFolderOr(flags.data)) + "/ca.pem";
  std::error_code error;
  if (flags.file.empty() && !std::filesystem::exists(path, error))
    return absl::InvalidArgumentError(absl::StrCat(
        "no CA in ", DataFolderOr(flags.data),
        "; name the gateway's folder with --data (a gateway with TLS makes one, as does `outboard "
        "cert init`)"));
  OB_ASSIGN_OR_RETURN(std::vector<Certificate> all, ReadChain(path));
  if (flags.fingerprint) {
    std::printf("%s\n", all.back().fingerprint().ToString().c_str());
    return absl::OkStatus();
  }
  if (flags.file.empty()) {
    // The server's follows its CA's, where a gateway has made one.
    if (const auto server = ReadChain(ServerPath(flags)); server.ok())
      all.push_back(server->front());
  }
  std::vector<gateway::IssuedCertificate> workers;
  std::vector<std::string> revoked;
  if (flags.file.empty()) {
    OB_ASSIGN_OR_RETURN(workers, gateway::ReadIssued(DataFolderOr(flags.data)));
    OB_ASSIGN_OR_RETURN(revoked, gateway::ReadRevoked(DataFolderOr(flags.data)));
  }
  const auto state = [&](const gateway::IssuedCertificate& one) {
    if (std::find(revoked.begin(), revoked.end(), one.serial) != revoked.end()) return "revoked";
    return absl::Now() >= one.not_after ? "expired" : "good";
  };
  if (flags.json) {
    std::printf("{\"certificates\": [\n");
    for (const Certificate& one : all) PrintAsJson(one, &one == &all.back());
    std::printf("], \"workers\": [\n");
    for (const auto& one : workers)
      std::printf(
          "{\"name\": %s, \"serial\": \"%s\", \"not_after\": \"%s\", \"state\": \"%s\"}%s\n",
          Quoted(one.name).c_str(), one.serial.c_str(), Time(one.not_after).c_str(), state(one),
          &one == &workers.back() ? "" : ",");
    std::printf("]}\n");
    return absl::OkStatus();
  }
  for (const Certificate& one : all) Print(one);
  for (const auto& one : workers)
    std::printf("worker %s\n  serial       %s\n  valid        to %s, %s\n", one.name.c_str(),
                one.serial.c_str(), Time(one.not_after).c_str(), state(one));
  return absl::OkStatus();
}

absl::Status Init(const CertFlags& flags) {
  const std::string folder = DataFolderOr(flags.data);
  std::error_code error;
  if (std::filesystem::create_directories(folder, error))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  if (const auto known = gateway::ReadAuthority(folder); !flags.force && known.ok())
    return absl::AlreadyExistsError(absl::StrCat(
        "there is a CA in ", folder, " already (", known->certificate().fingerprint().ToString(),
        "); --force replaces it, and every client and worker then needs the new fingerprint"));
  OB_ASSIGN_OR_RETURN(const tls::Authority authority, flags.force
                                                          ? gateway::ReplaceAuthority(folder)
                                                          : gateway::EnsureAuthority(folder));
  OB_RETURN_IF_ERROR(gateway::IssueServerFile(authority, ServerPath(flags),
                                              gateway::NamesOfThisMachine(flags.names),
                                              flags.days * kDayS, Replace::kYes));
  Print(authority.certificate());
  std::fprintf(stderr,
               "outboard: CA and server's certificate are in %s; clients need "
               "CLOUD_FINGERPRINT=%s, or CLOUD_CA with a copy of ca.pem%s\n",
               gateway::TlsFolder(folder).c_str(),
               authority.certificate().fingerprint().ToString().c_str(),
               flags.force ? "; start the gateway again" : "");
  return absl::OkStatus();
}

absl::Status Issue(const CertFlags& flags) {
  OB_ASSIGN_OR_RETURN(const tls::Authority authority, OpenAuthority(flags));
  OB_ASSIGN_OR_RETURN(const KeyAndChain issued,
                      authority.Issue({.common_name = flags.names.front(),
                                       .names = flags.names,
                                       .lifetime_s = flags.days * kDayS}));
  const std::string prefix =
      WithoutEnding(flags.output.empty() ? flags.names.front() : flags.output);
  // Neither of the two may be there: a key without its certificate is of no use.
  if (!flags.force &&
      (std::filesystem::exists(prefix + ".key") || std::filesystem::exists(prefix + ".pem")))
    return absl::AlreadyExistsError(
        absl::StrCat(prefix, ".pem or ", prefix, ".key is there already; --force replaces both"));
  OB_RETURN_IF_ERROR(WritePair(prefix, issued, flags.force ? Replace::kYes : Replace::kNo));
  Print(issued.chain.front());
  std::fprintf(stderr, "outboard: the certificate is in %s.pem, its key in %s.key\n",
               prefix.c_str(), prefix.c_str());
  return absl::OkStatus();
}

absl::Status Renew(const CertFlags& flags) {
  OB_ASSIGN_OR_RETURN(const tls::Authority authority, OpenAuthority(flags));
  const bool is_server = flags.file.empty();
  const std::string path = is_server ? ServerPath(flags) : WithoutEnding(flags.file) + ".pem";
  OB_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadChain(path));
  const Certificate& old = chain.front();
  if (chain.back().fingerprint() != authority.certificate().fingerprint())
    return absl::InvalidArgumentError(
        absl::StrCat(path, " was issued by another CA than that of ", DataFolderOr(flags.data)));
  std::vector<std::string> names = old.names();
  names.insert(names.end(), flags.names.begin(), flags.names.end());
  if (is_server) {
    OB_RETURN_IF_ERROR(gateway::IssueServerFile(authority, path, gateway::NamesOfThisMachine(names),
                                                flags.days * kDayS, Replace::kYes));
  } else {
    OB_ASSIGN_OR_RETURN(
        const KeyAndChain issued,
        authority.Issue(
            {.common_name = old.common_name(), .names = names, .lifetime_s = flags.days * kDayS}));
    OB_RETURN_IF_ERROR(WritePair(WithoutEnding(flags.file), issued, Replace::kYes));
  }
  OB_ASSIGN_OR_RETURN(const std::vector<Certificate> renewed, ReadChain(path));
  Print(renewed.front());
  return absl::OkStatus();
}

absl::Status RevokeWorker(const CertFlags& flags) {
  const std::string folder = DataFolderOr(flags.data);
  OB_ASSIGN_OR_RETURN(const auto issued, gateway::ReadIssued(folder));
  bool found = false;
  for (const auto& one : issued) {
    if (one.serial != flags.serial && one.name != flags.serial) continue;
    OB_RETURN_IF_ERROR(gateway::Revoke(folder, one.serial));
    std::printf("revoked %s of %s\n", one.serial.c_str(), one.name.c_str());
    found = true;
  }
  if (!found)
    return absl::NotFoundError(
        "no certificate of a worker has that serial number or name; `outboard cert show` lists "
        "them");
  std::fprintf(stderr,
               "outboard: its connections end within seconds. Whoever has the fleet secret can "
               "enrol again: replace that too if it may be known (docs/fleet.md)\n");
  return absl::OkStatus();
}

absl::Status MakeToken(const CertFlags& flags) {
  const std::string folder = DataFolderOr(flags.data), name = flags.names.front();
  OB_RETURN_IF_ERROR(OpenAuthority(flags).status());
  OB_ASSIGN_OR_RETURN(const auto tokens,
                      gateway::WorkerTokens::Open(gateway::AccountsPath(folder)));
  OB_ASSIGN_OR_RETURN(const gateway::Secret token, tokens->Create(name, gateway::WallNow()));
  OB_ASSIGN_OR_RETURN(const auto issued, gateway::ReadIssued(folder));
  OB_ASSIGN_OR_RETURN(const auto revoked, gateway::ReadRevoked(folder));
  for (const auto& one : issued)
    if (one.name == name && absl::Now() < one.not_after &&
        std::find(revoked.begin(), revoked.end(), one.serial) == revoked.end())
      std::fprintf(stderr,
                   "outboard: a worker has this name, with a certificate until %s: until then, or "
                   "`outboard cert revoke %s`, no other can enrol\n",
                   Time(one.not_after).c_str(), name.c_str());
  // Alone on stdout, for a file.
  std::printf("%s\n", std::string(token.Reveal()).c_str());
  std::fprintf(stderr,
               "outboard: for `outboard worker --name %s --token-file`, once, within %lld "
               "minutes; it is shown this once\n",
               name.c_str(), static_cast<long long>(gateway::kWorkerTokenLifeMs / 60'000));
  return absl::OkStatus();
}

int RunCertToken(const CertFlags& flags) { return Report(MakeToken(flags)); }
int RunCertInit(const CertFlags& flags) { return Report(Init(flags)); }
int RunCertIssue(const CertFlags& flags) { return Report(Issue(flags)); }
int RunCertRenew(const CertFlags& flags) { return Report(Renew(flags)); }
int RunCertShow(const CertFlags& flags) { return Report(Show(flags)); }
int RunCertRevoke(const CertFlags& flags) { return Report(RevokeWorker(flags)); }

}  // namespace

void AddCertificateCommands(Arguments& app) {
  const auto flags = std::make_shared<CertFlags>();
  CertFlags& certified = *flags;
  Command cert = app.Subcommand("cert", "Manage the private CA and certificates of a data folder");
  cert.RequireSubcommand();
  Command cert_init = cert.Subcommand("init", "Make a CA and the gateway's certificate");
  cert_init.Add(
      "--name", &certified.names,
      "A name or address of this machine as clients write it; may be given several times");
  Command cert_issue =
      cert.Subcommand("issue", "Issue a certificate for a server, a proxy for example");
  cert_issue
      .Add("name", &certified.names, "Names and addresses of the server, as clients write them")
      .Required();
  cert_issue.Add("-o,--output", &certified.output,
                 "Write OUTPUT.pem and OUTPUT.key (default: the first name)");
  Command cert_renew =
      cert.Subcommand("renew", "Replace a certificate by a new one with the same names");
  cert_renew.Add("file", &certified.file, "What `issue` wrote (default: the gateway's own)");
  cert_renew.Add("--name", &certified.names, "A name to add; may be given several times");
  Command cert_show =
      cert.Subcommand("show", "Show the CA, the gateway's certificate and those of its workers");
  cert_show.Add("file", &certified.file, "Show what is in this PEM file instead");
  cert_show.Add("--fingerprint", &certified.fingerprint,
                "Only the fingerprint of the CA, for CLOUD_FINGERPRINT");
  cert_show.Add("--json", &certified.json, "Print JSON");
  Command cert_revoke = cert.Subcommand("revoke", "Refuse a worker's certificate");
  cert_revoke.Add("worker", &certified.serial, "Its serial number or name, as `show` prints it")
      .Required();
  Command cert_token = cert.Subcommand(
      "token", "Make a token with which one new worker enrols (--worker-tokens), for 15 minutes");
  cert_token.Add("name", &certified.names, "The worker's --name: its serial number, for example")
      .Required()
      .Once();
  for (Command command : {cert_init, cert_issue, cert_renew, cert_show, cert_revoke, cert_token})
    command.Add("--data", &certified.data, kDataHelp);
  for (Command command : {cert_init, cert_issue, cert_renew})
    command.Add("--days", &certified.days, "Days that the certificate is valid").Between(1, 3650);
  for (Command command : {cert_init, cert_issue})
    command.Add("--force", &certified.force, "Replace what is there already");
  cert_init.Runs(flags, RunCertInit);
  cert_issue.Runs(flags, RunCertIssue);
  cert_renew.Runs(flags, RunCertRenew);
  cert_show.Runs(flags, RunCertShow);
  cert_revoke.Runs(flags, RunCertRevoke);
  cert_token.Runs(flags, RunCertToken);
}

}  // namespace outboard::cli
