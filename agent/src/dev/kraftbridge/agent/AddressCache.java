package dev.kraftbridge.agent;

import java.lang.instrument.Instrumentation;
import java.util.Collections;
import java.util.Map;
import java.util.Set;

/**
 * How long this JVM keeps an address that it has resolved.
 *
 * <p>The JVM's own policy is asked, since it is what counts: the security property {@code networkaddress.cache.ttl} of the image's {@code
 * java.security} wins over the system property {@code sun.net.inetaddr.ttl}, and a security manager changes the default.
 */
final class AddressCache {
    private static final String PACKAGE = "sun.net";

    private AddressCache() {}

    /** Returns the time in seconds; -1 for ever. */
    static int seconds(Instrumentation instrumentation) throws ReflectiveOperationException {
        Class<?> policy = Class.forName(PACKAGE + ".InetAddressCachePolicy");
        if (!System.getProperty("java.specification.version").startsWith("1.")) {
            export(policy, instrumentation);
        }
        return (Integer) policy.getMethod("get").invoke(null);
    }

    /** Exports the policy's package to the agent. Modules came with Java 9, and the agent is compiled for 8. */
    private static void export(Class<?> policy, Instrumentation instrumentation) throws ReflectiveOperationException {
        Class<?> module = Class.forName("java.lang.Module");
        Object base = Class.class.getMethod("getModule").invoke(policy);
        Object own = Class.class.getMethod("getModule").invoke(AddressCache.class);
        Map<String, Set<Object>> exported = Collections.singletonMap(PACKAGE, Collections.singleton(own));
        Instrumentation.class
                .getMethod("redefineModule", module, Set.class, Map.class, Map.class, Set.class, Map.class)
                .invoke(instrumentation, base, Collections.emptySet(), exported, Collections.emptyMap(), Collections.emptySet(),
                        Collections.emptyMap());
    }
}
