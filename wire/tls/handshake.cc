#include "wire/tls/handshake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/host_port.h"
#include "wire/tls/limits.h"

namespace outboard::tls {
namespace {

using Clock = std::chrono::steady_clock;

bool WaitUntil(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd ready{fd, events, 0};
  return left.count() > 0 && poll(&ready, 1, static_cast<int>(left.count())) == 1;
}

// -1 where nobody accepts.
int Connect(const std::string& target, Clock::time_point deadline) {
  const std::optional<HostPort> place = SplitHostPort(target);
  if (!place.has_value()) return -1;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = std::to_string(place->port);
  if (getaddrinfo(place->host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  int connected = -1;
  for (const addrinfo* at = found; at != nullptr && connected < 0; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0 ||
        (errno == EINPROGRESS && WaitUntil(fd, POLLOUT, deadline) &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0))
      connected = fd;
    else
      close(fd);
  }
  freeaddrinfo(found);
  return connected;
}

std::vector<Certificate> ChainOf(SSL* ssl) {
  std::vector<Certificate> chain;
  const STACK_OF(X509)* const presented = SSL_get_peer_cert_chain(ssl);
  for (int i = 0; i < sk_X509_num(presented) && chain.size() < kChainLengthMax; ++i) {
    X509* const one = sk_X509_value(presented, i);
    X509_up_ref(one);
    chain.emplace_back(one);
  }
  return chain;
}

// Sends what OpenSSL has written. By hand, since its own sockets raise SIGPIPE in whatever program
// this is.
bool Flush(BIO* from, int fd, Clock::time_point deadline) {
  char* bytes = nullptr;
  for (long left = BIO_get_mem_data(from, &bytes); left > 0;) {
    const ssize_t sent = send(fd, bytes, static_cast<size_t>(left), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent < 0 && !WaitUntil(fd, POLLOUT, deadline)) return false;
    if (sent > 0) bytes += sent, left -= sent;
  }
  BIO_reset(from);
  return true;
}

// False when the connection has ended or the time is over.
bool Fill(BIO* to, int fd, Clock::time_point deadline) {
  char bytes[4096];
  for (;;) {
    const ssize_t count = recv(fd, bytes, sizeof bytes, 0);
    if (count > 0) return BIO_write(to, bytes, static_cast<int>(count)) == count;
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (!WaitUntil(fd, POLLIN, deadline)) return false;
  }
}

bool IsAlert(unsigned long error) {
  return ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET;
}

}  // namespace

std::string HostOf(const std::string& target) {
  const std::optional<HostPort> place = SplitHostPort(target);
  return place.has_value() ? place->host : target;
}

Handshake ShakeHandsOn(int fd, const std::string& host, std::chrono::milliseconds within) {
  const Clock::time_point deadline = Clock::now() + within;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  OB_CHECK(context != nullptr);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  OB_CHECK(ssl != nullptr);
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  in6_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) != 1 &&
      inet_pton(AF_INET6, host.c_str(), &address) != 1)
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  BIO* const incoming = BIO_new(BIO_s_mem());
  BIO* const outgoing = BIO_new(BIO_s_mem());
  OB_CHECK(incoming != nullptr && outgoing != nullptr);
  SSL_set_bio(ssl.get(), incoming, outgoing);  // owns them
  Handshake result;
  for (bool more = true; more;) {
    ERR_clear_error();
    const int done = SSL_connect(ssl.get());
    const int wants = SSL_get_error(ssl.get(), done);
    if (done == 1) {
      result.speaks = Speaks::kTls;
      result.chain = ChainOf(ssl.get());
    } else if (wants == SSL_ERROR_SSL) {
      const unsigned long error = ERR_peek_last_error();
      result.speaks = IsAlert(error) ? Speaks::kTls : Speaks::kOther;
      if (IsAlert(error)) result.alert = LastTlsError();
    }
    more = Flush(outgoing, fd, deadline) && wants == SSL_ERROR_WANT_READ &&
           Fill(incoming, fd, deadline);
  }
  ERR_clear_error();
  return result;
}

Handshake ShakeHands(const std::string& target, std::chrono::milliseconds within) {
  const Clock::time_point deadline = Clock::now() + within;
  const int fd = Connect(target, deadline);
  if (fd < 0) return {};
  Handshake result = ShakeHandsOn(
      fd, HostOf(target), std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
  close(fd);
  return result;
}

}  // namespace outboard::tls
