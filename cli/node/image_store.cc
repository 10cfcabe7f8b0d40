#include "cli/node/image_store.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/sha256.h"
#include "worker/init/node_facts.h"

namespace outboard::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSmallFileBytesMax = 16 << 10;
constexpr char kSums[] = "SHA256SUMS", kSignature[] = "SHA256SUMS.sig",
               kRelease[] = "kernel-release", kDriver[] = "driver.squashfs";

std::string ImagesFolder(const std::string& data_folder) { return data_folder + "/images"; }

std::string FolderOf(const std::string& data_folder, const std::string& digest) {
  return absl::StrCat(ImagesFolder(data_folder), "/", digest.substr(kSha256Prefix.size()));
}

// `digest`: 64 hex digits. Its SHA256SUMS lies beside it.
std::string DriverPath(const std::string& data_folder, const std::string& digest) {
  return absl::StrCat(data_folder, "/drivers/", digest);
}
std::string DriverSumsPath(const std::string& driver) { return driver + "." + kSums; }

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// Of a certificate or of a public key.
Key ReadKey(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  if (bio == nullptr) return {nullptr, &EVP_PKEY_free};
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
  if (certificate != nullptr) return {X509_get_pubkey(certificate.get()), &EVP_PKEY_free};
  BIO_reset(bio.get());
  return {PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free};
}

bool IsSignedBy(EVP_PKEY* key, const std::string& text, const std::string& signature) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  return context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                          text.size()) == 1;
}

std::string SignerPath(const std::string& data_folder) {
  return ImagesFolder(data_folder) + "/signer.pem";
}

std::string KeptSigner(const std::string& data_folder) {
  return worker::FileText(SignerPath(data_folder), kSmallFileBytesMax);
}

// The signer whose signature is asked for, PEM; empty: none is.
absl::StatusOr<std::string> SignerOf(const std::string& data_folder, const ImageToAdd& add) {
  const std::string kept = KeptSigner(data_folder);
  if (add.signer_file.empty()) return kept;
  const std::string given = worker::FileText(add.signer_file, kSmallFileBytesMax);
  const Key key = ReadKey(given);
  if (key == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("--signer: ", add.signer_file, " is no certificate or public key (PEM)"));
  if (kept.empty()) return given;
  const Key before = ReadKey(kept);
  if (before != nullptr && EVP_PKEY_eq(before.get(), key.get()) == 1) return kept;
  return absl::FailedPreconditionError(
      absl::StrCat("images here are signed by the key of ", ImagesFolder(data_folder),
                   "/signer.pem, and ", add.signer_file, " is another: remove that file first"));
}

// The signature of SHA256SUMS lies beside it.
absl::Status CheckSignature(const std::string& sums_path, const std::string& signer) {
  if (signer.empty()) return absl::OkStatus();
  const std::string signature = worker::FileText(sums_path + ".sig", kSmallFileBytesMax);
  const Key key = ReadKey(signer);
  if (key == nullptr) return absl::InvalidArgumentError("the kept signer.pem holds no key");
  const std::string sums = worker::FileText(sums_path, kSmallFileBytesMax);
  if (signature.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        sums_path, ".sig: expected a signature, found none; sign it (deploy/image/sign) and add it "
                   "again"));
  if (IsSignedBy(key.get(), sums, signature)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      sums_path, ".sig: expected a signature by the signer's key, found another"));
}

absl::Status CheckRelease(const std::string& folder, const std::string& found) {
  const std::string expected(
      absl::StripAsciiWhitespace(worker::FileText(folder + "/" + kRelease, kSmallFileBytesMax)));
  if (expected.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        folder, " has no ", kRelease, ": it was built by an older deploy/image/build"));
  if (expected == found) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": the initramfs expects kernel ", expected, ", found ", found));
}

absl::Status Copy(const std::string& from, const std::string& to) {
  const std::string partly = to + ".partly";
  std::error_code error;
  fs::remove_all(partly, error);
  fs::create_directories(partly, error);
  if (!error) fs::permissions(partly, fs::perms::owner_all, error);
  for (const char* const name : {"vmlinuz", "initramfs", kRelease, kSums, kSignature}) {
    if (error) break;
    std::error_code absent;
    if (!fs::exists(from + "/" + name, absent)) continue;  // the signature, where none is asked for
    fs::copy_file(from + "/" + name, partly + "/" + name, error);
  }
  // What was copied is what was checked.
  if (!error) OB_RETURN_IF_ERROR(ReadBootImage(partly).status());
  if (!error) fs::remove_all(to, error);
  if (!error) fs::rename(partly, to, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", to, ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::string> KernelRelease(const std::string& path) {
  // The boot protocol of x86: "HdrS" at 0x202, and at 0x20e where the version's text begins.
  constexpr size_t kMagicAt = 0x202, kPointerAt = 0x20e, kBase = 0x200, kHeadBytes = 64 << 10;
  const std::string head = worker::FileText(path, kHeadBytes);
  const auto no_kernel = [&] {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no kernel of x86"));
  };
  if (head.size() < kPointerAt + 2 || head.compare(kMagicAt, 4, "HdrS") != 0) return no_kernel();
  const size_t at = kBase + static_cast<unsigned char>(head[kPointerAt]) +
                    256U * static_cast<unsigned char>(head[kPointerAt + 1]);
  if (at >= head.size()) return no_kernel();
  std::string release;
  for (size_t i = at; i < head.size() && release.size() < 128 && head[i] > ' ' && head[i] <= '~';
       ++i)
    release.push_back(head[i]);
  if (release.empty()) return no_kernel();
  return release;
}

absl::StatusOr<AddedImage> AddImage(const std::string& data_folder, const ImageToAdd& add) {
  if (!add.digest.empty() && !IsSha256Name(add.digest))
    return absl::InvalidArgumentError(
        absl::StrCat("--digest: ", add.digest, " is no digest, sha256: and 64 hex digits"));
  AddedImage added;
  OB_ASSIGN_OR_RETURN(added.image, ReadBootImage(add.folder));
  if (!add.digest.empty() && add.digest != added.image.digest)
    return absl::InvalidArgumentError(absl::StrCat(add.folder, ": expected ", add.digest,
                                                   ", found ", added.image.digest));
  OB_ASSIGN_OR_RETURN(const std::string signer, SignerOf(data_folder, add));
  OB_RETURN_IF_ERROR(CheckSignature(add.folder + "/" + kSums, signer));
  OB_ASSIGN_OR_RETURN(added.kernel, KernelRelease(added.image.kernel.path));
  OB_RETURN_IF_ERROR(CheckRelease(add.folder, added.kernel));
  OB_RETURN_IF_ERROR(Copy(add.folder, FolderOf(data_folder, added.image.digest)));
  if (!signer.empty()) {
    const std::string path = SignerPath(data_folder);
    std::ofstream(path, std::ios::trunc) << signer;
    if (worker::FileText(path, kSmallFileBytesMax) != signer)
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return added;
}

absl::StatusOr<AddedDriver> AddDriver(const std::string& data_folder, const std::string& folder,
                                      const std::vector<std::string>& kernels) {
  const std::string sums = worker::FileText(folder + "/" + kSums, kSmallFileBytesMax);
  if (sums.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        folder, " has no ", kSums, ": --driver is a folder that deploy/image/driver wrote"));
  AddedDriver added;
  OB_ASSIGN_OR_RETURN(added.file, ReadListedFile(folder, kDriver, sums));
  OB_RETURN_IF_ERROR(ReadListedFile(folder, kRelease, sums).status());
  OB_RETURN_IF_ERROR(CheckSignature(folder + "/" + kSums, KeptSigner(data_folder)));
  added.kernel = std::string(
      absl::StripAsciiWhitespace(worker::FileText(folder + "/" + kRelease, kSmallFileBytesMax)));
  if (std::find(kernels.begin(), kernels.end(), added.kernel) == kernels.end())
    return absl::FailedPreconditionError(absl::StrCat(
        folder, ": expected drivers for kernel ",
        kernels.empty() ? "of an image, and none was added" : absl::StrJoin(kernels, " or "),
        ", found ", added.kernel));
  const std::string to = DriverPath(data_folder, added.file.digest), partly = to + ".partly";
  std::error_code error;
  fs::create_directories(fs::path(to).parent_path(), error);
  if (!error) fs::permissions(fs::path(to).parent_path(), fs::perms::owner_all, error);
  if (!error)
    fs::copy_file(added.file.path, partly, fs::copy_options::overwrite_existing, error);
  if (!error) {
    // What was copied is what was checked.
    OB_ASSIGN_OR_RETURN(const BootFile copied, ReadBootFile(partly));
    if (copied.digest != added.file.digest)
      return absl::InvalidArgumentError(absl::StrCat(folder, " changed while it was copied"));
    const std::string sums_to = DriverSumsPath(to);
    for (const char* const end : {"", ".sig"}) {
      const std::string from = folder + "/" + kSums + end;
      std::error_code absent;
      if (fs::exists(from, absent))
        fs::copy_file(from, sums_to + end, fs::copy_options::overwrite_existing, error);
      if (error) break;
    }
    if (!error) fs::rename(partly, to, error);
  }
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot write ", to, ": ", error.message()));
  added.file.path = to;
  return added;
}

std::vector<std::string> StoredDriverFiles(const std::string& data_folder,
                                           const std::string& digest) {
  if (!IsSha256Name(digest)) return {};
  const std::string driver = DriverPath(data_folder, digest.substr(kSha256Prefix.size()));
  const std::string sums = DriverSumsPath(driver);
  return {driver, sums, sums + ".sig", SignerPath(data_folder)};
}

absl::StatusOr<BootFile> FindStoredDriver(const std::string& data_folder,
                                          const std::string& digest) {
  std::error_code error;
  BootFile file{.path = {}, .digest = {}, .bytes = 0};
  if (IsSha256Name(digest)) file.digest = digest.substr(kSha256Prefix.size());
  if (!file.digest.empty()) file.path = DriverPath(data_folder, file.digest);
  if (file.path.empty() || !fs::is_regular_file(file.path, error))
    return absl::NotFoundError(absl::StrCat("no driver ", digest, " is in ", data_folder));
  file.bytes = fs::file_size(file.path, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", error.message()));
  const std::string signer = KeptSigner(data_folder), sums = DriverSumsPath(file.path);
  if (signer.empty()) return file;
  OB_RETURN_IF_ERROR(CheckSignature(sums, signer));
  // Signed, and of this very file.
  const std::string listed =
      ListedDigest(worker::FileText(sums, kSmallFileBytesMax), kDriver);
  if (listed == file.digest) return file;
  return absl::InvalidArgumentError(absl::StrCat(
      sums, ": expected sha256:", file.digest, ", found ",
      listed.empty() ? "no line for " + std::string(kDriver) : "sha256:" + listed));
}

absl::StatusOr<BootFile> ReadStoredDriver(const std::string& data_folder,
                                          const std::string& digest) {
  OB_ASSIGN_OR_RETURN(const BootFile found, FindStoredDriver(data_folder, digest));
  OB_ASSIGN_OR_RETURN(const BootFile file, ReadBootFile(found.path));
  if (found.digest == file.digest) return file;
  return absl::InvalidArgumentError(
      absl::StrCat(file.path, ": expected ", digest, ", found sha256:", file.digest));
}

std::vector<std::string> StoredImageFiles(const std::string& data_folder,
                                          const std::string& digest) {
  if (!IsSha256Name(digest)) return {};
  const std::string folder = FolderOf(data_folder, digest) + "/";
  return {folder + kSums, folder + kSignature, folder + "vmlinuz", folder + "initramfs",
          SignerPath(data_folder)};
}

absl::StatusOr<BootImage> ReadServedImage(const std::string& data_folder,
                                          const std::string& folder) {
  // First, since it is of a small file.
  OB_RETURN_IF_ERROR(CheckSignature(folder + "/" + kSums, KeptSigner(data_folder)));
  return ReadBootImage(folder);
}

absl::StatusOr<BootImage> ReadStoredImage(const std::string& data_folder,
                                          const std::string& digest) {
  std::error_code error;
  if (!IsSha256Name(digest) || !fs::is_directory(FolderOf(data_folder, digest), error))
    return absl::NotFoundError(absl::StrCat("no image ", digest, " is in ",
                                            ImagesFolder(data_folder)));
  OB_ASSIGN_OR_RETURN(BootImage image,
                      ReadServedImage(data_folder, FolderOf(data_folder, digest)));
  if (image.digest == digest) return image;
  return absl::InvalidArgumentError(
      absl::StrCat(FolderOf(data_folder, digest), ": expected ", digest, ", found ", image.digest));
}

}  // namespace outboard::cli
