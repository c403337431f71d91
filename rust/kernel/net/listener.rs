// SPDX-License-Identifier: GPL-2.0

//! UDP sockets that hand their datagrams to a protocol in the kernel.
//!
//! C header: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h)

use crate::{
    address::Address,
    burst::RxBurst,
    hook::Hook,
    namespace::Net,
    receive::RxSkb, //
};
use core::{
    mem,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    ffi::c_void,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use rdma_bindings as bindings;
use sync::{
    call_in_kernel_thread,
    BhGuard, //
};

/// Bytes of memory that packets may take which left by one socket and are still in this machine's queues: many times
/// what any queue needs. Those that are given to the stack at the same moment may exceed it.
const MAX_QUEUED: usize = 64 << 20;

/// Takes the datagrams of a [`Listener`].
pub trait Receive: Send + Sync + 'static {
    /// The owner of an address, as long as the RCU read lock is held.
    type Owner<'a>;

    /// Called for each datagram that came to the socket, on several CPUs at once. Softirq context, under RCU.
    fn receive(&self, packet: RxSkb);

    /// Called as [`Self::receive`] is, for a datagram that was dropped because it cannot be handled: for example, it has
    /// options of IPv4, or extension headers of IPv6.
    fn dropped(&self, destination: &Address);

    /// Returns the owner of an address that is no group's; [`None`] leaves datagrams to it to the stack, as they
    /// are. They may be for another namespace, as those of an ipvlan in the mode L3S. Softirq, or process with bottom
    /// halves on if the packet is released from an NFQUEUE; under RCU. So is the drop of what is returned.
    fn owner<'a>(&self, destination: &Address, rcu: &'a rcu::Guard) -> Option<Self::Owner<'a>>;

    /// Called as [`Self::receive`] is, for datagrams that come together to an address of `owner`.
    fn receive_burst(&self, owner: Self::Owner<'_>, packets: RxBurst);
}

/// The target of a socket's user data. The core wants three low bits of the pointer.
#[repr(align(8))]
struct Endpoint<H> {
    handler: Arc<H>,
    port: u16,
}

impl<H: Receive> Endpoint<H> {
    /// Takes a datagram of a socket.
    ///
    /// # Safety
    ///
    /// To be called by UDP only, for a socket whose user data is an `Endpoint<H>` or, as it is being
    /// released, null; with a packet that it gives away.
    unsafe extern "C" fn receive(
        sk: *mut kernel_bindings::sock,
        skb: *mut kernel_bindings::sk_buff,
    ) -> c_int {
        // SAFETY: UDP calls us under RCU, with a valid socket.
        let endpoint = unsafe { bindings::rcu_dereference_sk_user_data(sk) }.cast::<Self>();
        // SAFETY: The caller promises what it points at; that lives until a grace period after the release
        // of the socket.
        let Some(endpoint) = (unsafe { endpoint.as_ref() }) else {
            // SAFETY: The packet is ours.
            unsafe { bindings::kfree_skb(skb) };
            return 0;
        };
        if let Some(skb) = NonNull::new(skb) {
            // SAFETY: The packet is ours, and as UDP hands it to such functions.
            match unsafe { RxSkb::from_encapsulation(skb) } {
                Ok(packet) => endpoint.handler.receive(packet),
                Err(destination) => endpoint.handler.dropped(&destination),
            }
        }
        // The packet was used.
        0
    }

    /// Takes packets before UDP does: super-packets come whole this way, and the others faster.
    ///
    /// # Safety
    ///
    /// To be called by netfilter only, with what it was registered with: an `Endpoint<H>` that lives until a
    /// grace period after the end of that; for packets of this machine.
    unsafe extern "C" fn look(
        endpoint: *mut c_void,
        skb: *mut kernel_bindings::sk_buff,
        state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: The caller promises it.
        let (endpoint, is_v4) = unsafe {
            (
                &*endpoint.cast_const().cast::<Self>(),
                (*state).pf == bindings::NFPROTO_IPV4,
            )
        };
        let rcu = rcu::read_lock();
        let taken = NonNull::new(skb).and_then(|skb| {
            let owner = |destination: &Address| endpoint.handler.owner(destination, &rcu);
            // SAFETY: As the caller promises; what is taken is kept from others below.
            unsafe { RxBurst::take(skb, is_v4, endpoint.port, owner) }
        });
        match taken {
            Some((owner, packets)) => {
                // A packet that is released from an NFQUEUE comes in the process's system call, with bottom halves on.
                let _bh = BhGuard::new();
                endpoint.handler.receive_burst(owner, packets);
                bindings::NF_STOLEN
            }
            None => bindings::NF_ACCEPT,
        }
    }
}

/// A socket that was made for us.
///
/// # Invariants
///
/// It is a bound UDP socket that nobody else releases.
struct Socket(NonNull<kernel_bindings::socket>);

// SAFETY: A socket may be released on any thread.
unsafe impl Send for Socket {}
// SAFETY: A shared reference only yields its `sock`, which is counted for itself.
unsafe impl Sync for Socket {}

impl Socket {
    /// Makes a socket.
    #[inline(never)]
    fn open(net: &Net, family: u32, port: u16) -> Result<Self> {
        let mut config = bindings::udp_port_cfg {
            family: u8::try_from(family)?,
            local_udp_port: port.to_be(),
            ..Default::default()
        };
        // IPv4 has a socket of its own. Checksums are taken if they are there, and not asked for.
        config.set_ipv6_v6only(1);
        config.set_use_udp6_rx_checksums(0);
        let mut socket = ptr::null_mut();
        let create = if family == kernel_bindings::AF_INET6 {
            bindings::udp_sock_create6
        } else {
            bindings::udp_sock_create4
        };
        // SAFETY: `net` is a namespace that has not ended, `config` asks for any local address, and
        // `socket` is valid for writes.
        to_result(unsafe { create(net.as_ptr(), &mut config, &mut socket) })?;
        // INVARIANT: Made for us, and bound.
        NonNull::new(socket).map(Self).ok_or(ENOMEM)
    }

    /// Lets `endpoint` have its datagrams.
    ///
    /// # Safety
    ///
    /// `endpoint` lives until a grace period after the socket was dropped. This is called once.
    unsafe fn attach<H: Receive>(&self, endpoint: *const Endpoint<H>) {
        let mut config = bindings::udp_tunnel_sock_cfg {
            sk_user_data: endpoint.cast_mut().cast::<c_void>(),
            // Any but zero: it says that `encap_rcv` is to be asked.
            encap_type: 1,
            encap_rcv: Some(Endpoint::<H>::receive),
            ..pin_init::zeroed()
        };
        // SAFETY: By the type invariant this is a UDP socket, which is no tunnel yet, as the caller promises; `encap_rcv`
        // fits the user data, which lives long enough, as the caller promises.
        unsafe { bindings::setup_udp_tunnel_sock(self.0.as_ptr(), &mut config) };
    }

    /// Returns a reference to what the socket is inside.
    fn sock(&self) -> Sock {
        // SAFETY: By the type invariant this is a socket, which has a `sock`, whose reference count is not
        // zero.
        unsafe {
            let sk = (*self.0.as_ptr()).sk;
            bindings::sock_hold(sk);
            // INVARIANT: That is the reference.
            Sock(NonNull::new_unchecked(sk))
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the socket is ours to release.
        unsafe { bindings::udp_tunnel_sock_close(self.0.as_ptr()) };
    }
}

/// A reference to the inside of a socket, which stays when the socket is released.
///
/// # Invariants
///
/// A reference of it is ours.
pub(crate) struct Sock(NonNull<kernel_bindings::sock>);

// SAFETY: Our uses of a `sock` are allowed on any thread.
unsafe impl Send for Sock {}
// SAFETY: As above.
unsafe impl Sync for Sock {}

impl Sock {
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut kernel_bindings::sock {
        self.0.as_ptr()
    }
}

impl Drop for Sock {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::sock_put(self.0.as_ptr()) };
    }
}

/// Sockets, and what their datagrams go to.
struct Ports<H: Receive> {
    hook_v4: Option<Hook>,
    hook_v6: Option<Hook>,
    v4: Option<Socket>,
    v6: Option<Socket>,
    /// The sockets have the endpoint, or had it: receivers that found it by them may still run when they are closed.
    is_attached: bool,
    endpoint: KBox<Endpoint<H>>,
}

impl<H: Receive> Ports<H> {
    /// Lets the endpoint have the datagrams of the sockets, if it has not got them yet.
    fn attach(&mut self) {
        if !mem::replace(&mut self.is_attached, true) {
            for socket in [&self.v4, &self.v6].into_iter().flatten() {
                // SAFETY: `self` frees the endpoint only a grace period after the sockets. It was not attached before.
                unsafe { socket.attach(&*self.endpoint) };
            }
        }
    }

    /// Takes packets for the port of an open socket before the socket does.
    fn hook(&self, net: &Net, is_v4: bool) -> Result<Hook> {
        let endpoint = (&raw const *self.endpoint).cast::<c_void>();
        // SAFETY: `look` is given what it asks for, which `self` frees only a grace period after the hooks, of
        // which this becomes one.
        unsafe { Hook::register(net, is_v4, Endpoint::<H>::look, endpoint) }
    }

    /// Closes the sockets, without waiting for their receivers.
    fn close(&mut self) {
        drop(self.v4.take());
        drop(self.v6.take());
    }
}

impl<H: Receive> Drop for Ports<H> {
    fn drop(&mut self) {
        end(slice::from_mut(self), |ports| ports);
    }
}

/// Ends the receiving of all `items`, which wait for the same grace periods. Process; RTNL may be held.
fn end<T, H: Receive>(items: &mut [T], ports: impl Fn(&mut T) -> &mut Ports<H>) {
    // Receivers that found an endpoint still use it.
    let wait_if = |is_used| {
        if is_used {
            // SAFETY: No requirements but the context.
            unsafe { bindings::synchronize_net() };
        }
    };
    wait_if(items.iter_mut().fold(false, |is_used, item| {
        let ports = ports(item);
        ports.close();
        mem::take(&mut ports.is_attached) | is_used
    }));
    wait_if(items.iter_mut().fold(false, |is_used, item| {
        let ports = ports(item);
        ports.hook_v4.take().is_some() | ports.hook_v6.take().is_some() | is_used
    }));
}

/// The sockets of one UDP port in one namespace, IPv4 and, where that is there, IPv6.
///
/// Dropping it (process; RTNL may be held) ends the receiving: when it returns, no handler runs any more. It
/// waits for a grace period.
pub struct Listener<H: Receive> {
    ports: Ports<H>,
    sender: Sender,
}

impl<H: Receive> Listener<H> {
    /// Takes UDP port `port` of `net`, for `handler`. Dropping the result does not wait for a grace period before
    /// [`Self::listen`] was called. Process; RTNL may be held.
    ///
    /// `EADDRINUSE` if somebody else has the port.
    pub fn bind(net: &Net, port: u16, handler: Arc<H>) -> Result<Self> {
        let mut sockets = Err(ENOMEM);
        // A socket belongs to the cgroups of the task that makes it: their filters are not for packets of others.
        call_in_kernel_thread(&mut || sockets = open_both(net, port));
        let (socket_v4, socket_v6) = sockets?;
        let (v4, v6) = (socket_v4.sock(), socket_v6.as_ref().map(Socket::sock));
        let ports = Ports {
            hook_v4: None,
            hook_v6: None,
            v4: Some(socket_v4),
            v6: socket_v6,
            is_attached: false,
            endpoint: KBox::new(Endpoint { handler, port }, GFP_KERNEL)?,
        };
        let net = net.clone();
        let sender = Sender(Arc::new(Sockets { v4, v6, net }, GFP_KERNEL)?);
        Ok(Self { ports, sender })
    }

    /// Hands the datagrams that arrive to the handler from now on, if it does not yet. After an error it may be tried
    /// again. Process; RTNL may be held.
    ///
    /// `E2BIG` if netfilter has too many hooks in the namespace.
    pub fn listen(&mut self) -> Result {
        let ports = &mut self.ports;
        let net = self.sender.net();
        // Datagrams that come before stay in the sockets, which nobody reads.
        ports.attach();
        if ports.v4.is_some() && ports.hook_v4.is_none() {
            ports.hook_v4 = Some(ports.hook(net, true)?);
        }
        if ports.v6.is_some() && ports.hook_v6.is_none() {
            ports.hook_v6 = Some(ports.hook(net, false)?);
        }
        Ok(())
    }

    /// Drops several. They wait for the same grace periods, however many they are. Process; RTNL may be held.
    pub fn drop_all(mut listeners: KVec<Self>) {
        end(&mut listeners, |listener| &mut listener.ports);
    }

    /// Lets others have the port, at once: that waits for nobody. Handlers may run until `self` is dropped. Process; RTNL
    /// may be held.
    pub fn close(&mut self) {
        self.ports.close();
    }

    /// Returns what is needed to send from the port. Any context.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

/// Opens the socket of IPv4 and, unless the administrator has disabled IPv6, that of IPv6. Takes no RTNL: a thread that has
/// it may wait for this one.
fn open_both(net: &Net, port: u16) -> Result<(Socket, Option<Socket>)> {
    let v4 = Socket::open(net, kernel_bindings::AF_INET, port)?;
    // SAFETY: No requirements.
    let v6 = if unsafe { bindings::ipv6_mod_enabled() } {
        Some(Socket::open(net, kernel_bindings::AF_INET6, port)?)
    } else {
        None
    };
    Ok((v4, v6))
}

/// The means to send from the port of a [`Listener`].
///
/// It goes on working when the listener is gone, as long as there is a route. Like a [`Net`], it holds off the
/// end of its namespace. Clone and drop: any context.
#[derive(Clone)]
pub struct Sender(Arc<Sockets>);

/// References to the insides of a listener's sockets.
struct Sockets {
    v4: Sock,
    v6: Option<Sock>,
    net: Net,
}

impl Sender {
    /// Returns the namespace.
    #[inline]
    pub fn net(&self) -> &Net {
        &self.0.net
    }

    /// Returns the socket to send packets of a family from.
    #[inline]
    pub(crate) fn sock(&self, is_v4: bool) -> Option<&Sock> {
        if is_v4 {
            Some(&self.0.v4)
        } else {
            self.0.v6.as_ref()
        }
    }

    /// Returns how many bytes of memory the packets take that were sent and have not left the machine yet,
    /// from all users of the port together. Any context.
    pub fn queued_bytes(&self, is_v4: bool) -> usize {
        self.sock(is_v4).map_or(0, |sock| {
            // SAFETY: A reference of the socket is ours.
            let bytes = unsafe { bindings::sk_wmem_alloc_get(sock.as_ptr()) };
            usize::try_from(bytes).unwrap_or_default()
        })
    }

    /// Returns whether these packets take so much memory that another one must not leave. Any context.
    ///
    /// A queue may be as long as its administrator likes, and keep packets for as long as it likes; but the memory is
    /// nobody's but the kernel's, and what a socket is charged with is counted in 31 bits.
    #[inline]
    pub(crate) fn is_full(&self, is_v4: bool) -> bool {
        self.queued_bytes(is_v4) >= MAX_QUEUED
    }
}
