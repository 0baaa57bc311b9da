#include "device.h"

#include <arpa/inet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace meshnet::delay {
namespace {

constexpr uint32_t kNetmask = 0xffffff00;
constexpr int kDeviceQueuePackets = 8192;  // a burst of a whole prompt's frames fits in until we read it

ifreq Named(const char * name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

class Device {
 public:
  explicit Device(const char * name) : name_(name), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    Require(socket_.get() >= 0, "socket");
  }

  void SetFlags(short on, short off) const {
    ifreq request = Named(name_);
    Call(SIOCGIFFLAGS, &request, "read flags");
    request.ifr_flags = static_cast<short>((request.ifr_flags | on) & ~off);
    Call(SIOCSIFFLAGS, &request, "set flags");
  }
  void SetMtu(int bytes) const {
    ifreq request = Named(name_);
    request.ifr_mtu = bytes;
    Call(SIOCSIFMTU, &request, "set MTU");
  }
  void SetQueue(int packets) const {
    ifreq request = Named(name_);
    request.ifr_qlen = packets;
    Call(SIOCSIFTXQLEN, &request, "set queue length");
  }
  void SetAddress(unsigned long which, uint32_t address) const {
    sockaddr_in inet{};
    inet.sin_family = AF_INET;
    inet.sin_addr.s_addr = htonl(address);
    ifreq request = Named(name_);
    std::memcpy(&request.ifr_addr, &inet, sizeof(inet));
    Call(which, &request, "set address");
  }

 private:
  void Call(unsigned long which, ifreq * request, const char * what) const {
    Require(ioctl(socket_.get(), which, request) == 0, std::string(name_) + ": " + what);
  }

  const char * name_;
  Fd socket_;
};

// Nothing but what programs send shall cross the line: no neighbour discovery, no multicast reports.
void SwitchIpv6Off() {
  const std::string path = std::string("/proc/sys/net/ipv6/conf/") + kTunName + "/disable_ipv6";
  if (access(path.c_str(), F_OK) != 0) return;
  const Fd fd = Open(path, O_WRONLY);
  Require(write(fd.get(), "1", 1) == 1, path);
}

}  // namespace

Fd OpenTun(const TunSettings & settings) {
  Fd fd = Open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request = Named(kTunName);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  Require(ioctl(fd.get(), TUNSETIFF, &request) == 0, "new TUN device");
  SwitchIpv6Off();
  const Device device(kTunName);
  device.SetMtu(settings.mtu);
  device.SetQueue(kDeviceQueuePackets);
  device.SetAddress(SIOCSIFADDR, settings.address);
  device.SetAddress(SIOCSIFNETMASK, kNetmask);
  device.SetFlags(IFF_UP, IFF_MULTICAST);
  return fd;
}

void BringLoopbackUp() { Device("lo").SetFlags(IFF_UP, 0); }

}  // namespace meshnet::delay
