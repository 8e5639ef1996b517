package dev.kraftbridge.agent;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * Main class of a rehearsal's broker: starts Kafka's own broker in KRaft mode, reports the settings in force, and ends.
 *
 * <p>Arguments: a file with the salt of hashes, and the properties file. {@code KafkaRaftServer.startup} returns after the first metadata publish, in which
 * {@code DynamicConfigPublisher} applies the dynamic settings. {@code DynamicBrokerConfig.currentKafkaConfig} then holds what was not refused. No client asks
 * the broker, so it needs no listener of ours and no login, and sensitive settings can be compared by their hashes.
 */
public final class RehearsedBroker {
    /** Begins the line with the result, on standard output. */
    static final String RESULT = "kraftbridge-rehearsed-broker ";

    /** Kafka has thrown. Other than that of {@code -XX:+ExitOnOutOfMemoryError}, which is 3. */
    private static final int EXIT_REFUSED = 4;

    /** This class does not fit the image's Kafka, or a port was taken: nothing is known of the broker. */
    private static final int EXIT_UNFIT = 5;

    private RehearsedBroker() {}

    /** Starts the broker; never returns. */
    public static void main(String[] arguments) {
        try {
            DryStartAgent.Report report = new DryStartAgent.Report(Paths.get(arguments[0]), Files.readAllBytes(Paths.get(arguments[0])));
            ClassLoader loader = ClassLoader.getSystemClassLoader();
            Class<?> type = Class.forName("kafka.server.KafkaConfig", true, loader);
            Properties given = new Properties();
            try (java.io.Reader in = Files.newBufferedReader(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
                given.load(in);
            }
            Object config = type.getMethod("fromProps", Properties.class, boolean.class).invoke(null, given, false);
            Class<?> time = Class.forName("org.apache.kafka.common.utils.Time", true, loader);
            Class<?> server = Class.forName("kafka.server.KafkaRaftServer", true, loader);
            Object running = server.getConstructor(type, time).newInstance(config, time.getField("SYSTEM").get(null));
            server.getMethod("startup").invoke(running);
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("settings", report.effective(type, inForce(server, running)));
            result.put("dynamic", dynamicNames(loader));
            System.out.println(RESULT + DryStartAgent.Json.of(result));
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            boolean isOfKafka = error instanceof InvocationTargetException;
            Throwable thrown = isOfKafka ? error.getCause() : error;
            thrown.printStackTrace();
            System.err.flush();
            Runtime.getRuntime().halt(isOfKafka && !isPortTaken(thrown) ? EXIT_REFUSED : EXIT_UNFIT);
        }
    }

    private static boolean isPortTaken(Throwable thrown) {
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            if (cause instanceof java.net.BindException) {
                return true;
            }
        }
        return false;
    }

    /** Returns the names of the settings that Kafka lets be dynamic; it drops others in any mode. */
    private static List<String> dynamicNames(ClassLoader loader) throws ReflectiveOperationException {
        Object names = Class.forName("kafka.server.DynamicBrokerConfig", true, loader).getMethod("AllDynamicConfigs").invoke(null);
        Object joined = Class.forName("scala.collection.Iterable", true, loader).getMethod("mkString", String.class).invoke(names, "\n");
        return Arrays.asList(String.valueOf(joined).split("\n"));
    }

    private static Object inForce(Class<?> server, Object running) throws ReflectiveOperationException {
        Field field = server.getDeclaredField("broker");
        field.setAccessible(true);
        Object option = field.get(running);
        Object broker = Class.forName("scala.Option", true, server.getClassLoader()).getMethod("get").invoke(option);
        Object config = broker.getClass().getMethod("config").invoke(broker);
        Object dynamic = config.getClass().getMethod("dynamicConfig").invoke(config);
        return dynamic.getClass().getMethod("currentKafkaConfig").invoke(dynamic);
    }
}
