#include "worker/tpm/node_tpm.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "wire/tpm/credential.h"
#include "worker/tpm/tss_library.h"

namespace outboard::worker {
namespace {

constexpr char kDevice[] = "/dev/tpmrm0";  // with the kernel's own manager of what is loaded
// Where makers put certificates (TCG "EK Credential Profile", 2.2.1.4).
constexpr TPM2_HANDLE kRsaCertificate = 0x01C00002, kP256Certificate = 0x01C0000A;
constexpr uint16_t kNvPieceBytes = 512;  // what every TPM reads at once
constexpr ESYS_TR kNone = ESYS_TR_NONE;

absl::Status Refused(std::string_view what, TSS2_RC code) {
  return absl::UnavailableError(
      absl::StrFormat("the TPM's %s failed: code 0x%x", std::string(what), code));
}

// The length of the DER value that `text` begins with: behind it are what fills the place. 0: none.
size_t DerBytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(text[i]));
  };
  // Certificates have 256 bytes or more, and fewer than 65,536.
  if (text.size() < 4 || byte(0) != 0x30 || byte(1) != 0x82) return 0;
  const size_t bytes = 4 + (byte(2) << 8 | byte(3));
  return bytes <= text.size() ? bytes : 0;
}

class TssTpm final : public NodeTpm {
 public:
  explicit TssTpm(const TssLibrary& tss) : tss_(tss) {}
  ~TssTpm() override {
    for (const ESYS_TR handle : {ek_, ak_})
      if (handle != kNone) tss_.Esys_FlushContext(esys_, handle);
    if (esys_ != nullptr) tss_.Esys_Finalize(&esys_);
    if (tcti_ != nullptr) tss_.Tss2_TctiLdr_Finalize(&tcti_);
  }

  absl::Status Begin(const std::string& where, tpm::KeyKind kind) {
    TSS2_RC code = tss_.Tss2_TctiLdr_Initialize(where.c_str(), &tcti_);
    if (code == 0) code = tss_.Esys_Initialize(&esys_, tcti_, nullptr);
    if (code != 0) return Refused("connection at " + where, code);
    OB_RETURN_IF_ERROR(
        MakeKey("endorsement key", tpm::EndorsementTemplate(kind), ek_, endorsement_key_));
    OB_RETURN_IF_ERROR(
        MakeKey("attestation key", tpm::AttestationTemplate(), ak_, attestation_key_));
    certificate_ = ReadCertificate(kind == tpm::KeyKind::kRsa2048 ? kRsaCertificate
                                                                  : kP256Certificate);
    return absl::OkStatus();
  }

  const std::string& endorsement_key() const override { return endorsement_key_; }
  const std::string& attestation_key() const override { return attestation_key_; }
  const std::string& endorsement_certificate() const override { return certificate_; }

  absl::StatusOr<std::string> Activate(std::string_view id_object,
                                       std::string_view seed) override {
    TPM2B_ID_OBJECT credential{};
    TPM2B_ENCRYPTED_SECRET secret{};
    if (id_object.size() > std::min(sizeof credential.credential, tpm::kCredentialBytesMax) ||
        seed.size() > std::min(sizeof secret.secret, tpm::kSeedBytesMax))
      return absl::InvalidArgumentError(absl::StrCat("a credential of ", id_object.size(), " and ",
                                                     seed.size(), " bytes: more than a TPM takes"));
    credential.size = static_cast<UINT16>(id_object.size());
    std::memcpy(credential.credential, id_object.data(), id_object.size());
    secret.size = static_cast<UINT16>(seed.size());
    std::memcpy(secret.secret, seed.data(), seed.size());

    // What the endorsement key's policy asks for: whoever may use that hierarchy.
    constexpr TPMT_SYM_DEF kPlain{.algorithm = TPM2_ALG_NULL, .keyBits = {}, .mode = {}};
    ESYS_TR session = kNone;
    if (const TSS2_RC code =
            tss_.Esys_StartAuthSession(esys_, kNone, kNone, kNone, kNone, kNone, nullptr,
                                       TPM2_SE_POLICY, &kPlain, TPM2_ALG_SHA256, &session);
        code != 0)
      return Refused("session", code);
    // A session whose policy was used ends with it; else it is to be ended here.
    absl::Cleanup end = [&] { tss_.Esys_FlushContext(esys_, session); };
    if (const TSS2_RC code = tss_.Esys_PolicySecret(
            esys_, ESYS_TR_RH_ENDORSEMENT, session, ESYS_TR_PASSWORD, kNone, kNone, nullptr,
            nullptr, nullptr, 0, nullptr, nullptr);
        code != 0)
      return Refused("policy", code);
    TPM2B_DIGEST* opened = nullptr;
    if (const TSS2_RC code = tss_.Esys_ActivateCredential(esys_, ak_, ek_, ESYS_TR_PASSWORD,
                                                          session, kNone, &credential, &secret,
                                                          &opened);
        code != 0)
      return Refused("credential", code);
    std::string out(reinterpret_cast<const char*>(opened->buffer),
                    std::min<size_t>(opened->size, sizeof opened->buffer));
    tss_.Esys_Free(opened);
    return out;
  }

 private:
  absl::Status MakeKey(const char* what, const std::string& made_of, ESYS_TR& handle,
                       std::string& public_area) {
    TPM2B_PUBLIC in{};
    size_t at = 0;
    OB_CHECK(tss_.Tss2_MU_TPMT_PUBLIC_Unmarshal(
                 reinterpret_cast<const uint8_t*>(made_of.data()), made_of.size(), &at,
                 &in.publicArea) == 0);
    constexpr TPM2B_SENSITIVE_CREATE kNoPassword{};
    constexpr TPM2B_DATA kNothing{};
    constexpr TPML_PCR_SELECTION kNoPcrs{};
    TPM2B_PUBLIC* made = nullptr;
    if (const TSS2_RC code = tss_.Esys_CreatePrimary(
            esys_, ESYS_TR_RH_ENDORSEMENT, ESYS_TR_PASSWORD, kNone, kNone, &kNoPassword, &in,
            &kNothing, &kNoPcrs, &handle, &made, nullptr, nullptr, nullptr);
        code != 0)
      return Refused(what, code);
    uint8_t bytes[tpm::kPublicBytesMax];
    at = 0;
    const TSS2_RC written =
        tss_.Tss2_MU_TPMT_PUBLIC_Marshal(&made->publicArea, bytes, sizeof bytes, &at);
    tss_.Esys_Free(made);
    if (written != 0) return Refused(what, written);
    public_area.assign(reinterpret_cast<const char*>(bytes), at);
    return absl::OkStatus();
  }

  // Most TPMs in virtual machines have none: no error.
  std::string ReadCertificate(TPM2_HANDLE index) {
    ESYS_TR place = kNone;
    if (tss_.Esys_TR_FromTPMPublic(esys_, index, kNone, kNone, kNone, &place) != 0) return "";
    absl::Cleanup close = [&] { tss_.Esys_TR_Close(esys_, &place); };
    TPM2B_NV_PUBLIC* about = nullptr;
    if (tss_.Esys_NV_ReadPublic(esys_, place, kNone, kNone, kNone, &about, nullptr) != 0) return "";
    const size_t size = about->nvPublic.dataSize;
    tss_.Esys_Free(about);
    if (size > tpm::kCertificateBytesMax) return "";
    std::string all;
    while (all.size() < size) {
      const auto piece = static_cast<UINT16>(std::min<size_t>(kNvPieceBytes, size - all.size()));
      TPM2B_MAX_NV_BUFFER* read = nullptr;
      if (tss_.Esys_NV_Read(esys_, place, place, ESYS_TR_PASSWORD, kNone, kNone, piece,
                            static_cast<UINT16>(all.size()), &read) != 0)
        return "";
      const size_t got = std::min<size_t>(read->size, piece);
      all.append(reinterpret_cast<const char*>(read->buffer), got);
      tss_.Esys_Free(read);
      if (got == 0) return "";
    }
    all.resize(DerBytes(all));
    return all;
  }

  const TssLibrary& tss_;
  TSS2_TCTI_CONTEXT* tcti_ = nullptr;
  ESYS_CONTEXT* esys_ = nullptr;
  ESYS_TR ek_ = kNone, ak_ = kNone;
  std::string endorsement_key_, attestation_key_, certificate_;
};

}  // namespace

std::optional<std::string> TpmOfThisMachine() {
  const char* const where = std::getenv("OUTBOARD_NODE_TPM");
  if (where != nullptr && *where != '\0') {
    if (std::string_view(where) == "none") return std::nullopt;
    return where;
  }
  if (access(kDevice, F_OK) != 0) return std::nullopt;
  return absl::StrCat("device:", kDevice);
}

absl::StatusOr<std::unique_ptr<NodeTpm>> NodeTpm::Open(const std::string& where,
                                                       tpm::KeyKind kind) {
  OB_ASSIGN_OR_RETURN(const TssLibrary* const tss, TssLibrary::Load());
  auto opened = std::make_unique<TssTpm>(*tss);
  OB_RETURN_IF_ERROR(opened->Begin(where, kind));
  return opened;
}

}  // namespace outboard::worker
