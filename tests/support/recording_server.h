// A server that records what it is sent: by TLS with any certificate, or in the clear. It says
// nothing itself. For tests that a key does not go to whoever is not trusted.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "wire/tls/certificate.h"

namespace outboard::test {

class RecordingServer {
 public:
  explicit RecordingServer(const std::optional<tls::KeyAndChain>& identity) {
    signal(SIGPIPE, SIG_IGN);
    if (identity.has_value()) {
      context_ = SSL_CTX_new(TLS_server_method());
      SSL_CTX_use_PrivateKey(context_, identity->key.get());
      SSL_CTX_use_certificate(context_, identity->chain.front().get());
      for (size_t i = 1; i < identity->chain.size(); ++i)
        SSL_CTX_add1_chain_cert(context_, identity->chain[i].get());
      SSL_CTX_set_alpn_select_cb(
          context_,
          [](SSL*, const unsigned char** out, unsigned char* size, const unsigned char* in,
             unsigned, void*) {
            *out = in + 1;  // the first that is offered
            *size = in[0];
            return SSL_TLSEXT_ERR_OK;
          },
          nullptr);
    }
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Work(); });
  }
  ~RecordingServer() {
    stopping_ = true;
    thread_.join();
    close(fd_);
    SSL_CTX_free(context_);
  }

  int port() const { return port_; }
  int connections() const { return connections_; }
  // After decryption.
  std::string received() {
    std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  void Work() {
    while (!stopping_) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, 20) != 1) continue;
      const int peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) continue;
      ++connections_;
      timeval limit{.tv_sec = 1};
      setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      char bytes[4096];
      SSL* const ssl = context_ != nullptr ? SSL_new(context_) : nullptr;
      if (ssl != nullptr) SSL_set_fd(ssl, peer);
      if (ssl == nullptr || SSL_accept(ssl) == 1) {
        for (ssize_t count = 1; count > 0;) {
          count = ssl != nullptr ? SSL_read(ssl, bytes, sizeof bytes)
                                 : recv(peer, bytes, sizeof bytes, 0);
          std::lock_guard lock(mutex_);
          if (count > 0) received_.append(bytes, static_cast<size_t>(count));
          // As whoever speaks another protocol; a client that waits would take it for slow.
          if (ssl == nullptr && count > 0) {
            (void)!write(peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
            break;
          }
        }
      }
      SSL_free(ssl);
      close(peer);
      ERR_clear_error();
    }
  }

  SSL_CTX* context_ = nullptr;
  int fd_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::string received_;
  std::thread thread_;
};

}  // namespace outboard::test
