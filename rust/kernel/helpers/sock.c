// SPDX-License-Identifier: GPL-2.0

#include <net/inet_sock.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

__rust_helper void rust_helper_setup_udp_tunnel_sock(struct socket *sock,
						     struct udp_tunnel_sock_cfg *cfg)
{
	setup_udp_tunnel_sock(sock_net(sock->sk), sock->sk, cfg);
}

__rust_helper void rust_helper_udp_tunnel_sock_close(struct socket *sock)
{
	struct sock *sk = sock->sk;

	/* Packets in queues of netfilter may hold the socket, and come to it when the module has gone. */
	WRITE_ONCE(udp_sk(sk)->encap_rcv, NULL);
	udp_tunnel_sock_release(sk);
}

__rust_helper void *rust_helper_rcu_dereference_sk_user_data(const struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

__rust_helper void rust_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

__rust_helper void rust_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

__rust_helper int rust_helper_sk_wmem_alloc_get(const struct sock *sk)
{
	return sk_wmem_alloc_get(sk);
}
